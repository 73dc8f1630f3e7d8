"""Requests as a run would make them."""

from __future__ import annotations

from kerneldojo.policies import Request
from kerneldojo.schema import Answer, Episode, Message, Problem, Turn

SOURCE = "class Model: ...\ndef get_inputs(): return []\ndef get_init_inputs(): return []\n"


def problem(name="softmax", source=SOURCE):
    return Problem(name=name, source=source)


def episode(name="softmax", sample=0, answers=(), source=SOURCE):
    turns = tuple(
        Turn(index=index, answer=answer if isinstance(answer, Answer) else Answer(text=answer))
        for index, answer in enumerate(answers)
    )
    return Episode(id=f"{name}/{sample}", problem=problem(name, source), sample=sample, turns=turns)


def request(text="Write a kernel.", played=None, **fields):
    messages = (Message(role="system", content="You write kernels."), Message(role="user", content=text))
    return Request(episode=played or episode(), messages=messages, **fields)
