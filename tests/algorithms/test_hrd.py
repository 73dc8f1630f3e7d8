"""Token classes from ids, and what each class is paid."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kerneldojo.algorithms import HRDConfig, plan_tokens
from kerneldojo.algorithms.hrd import token_advantages

OPEN, CLOSE = 7, 8


def classes(*answers: str, starts_open: bool = False) -> list[str]:
    """Answers written as `<` open, `>` close, anything else; returned as `p` for plan and `c` for code."""
    ids = torch.tensor([{"<": OPEN, ">": CLOSE}.get(mark, 1) for answer in answers for mark in answer])
    sample = torch.arange(len(answers)).repeat_interleave(torch.tensor([len(answer) for answer in answers]))
    plan = plan_tokens(ids, sample, OPEN, CLOSE, starts_open)
    return ["".join("p" if plan[at] else "c" for at in (sample == i).nonzero()[:, 0]) for i in range(len(answers))]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("<xx>xx", "ppppcc"),
        ("x<x>x", "cpppc"),
        ("xxx", "ccc"),
        ("<xxx", "pppp"),
        ("xx>x", "cccc"),
        ("<x>x<x>x", "pppcpppc"),
        ("<x>>x", "pppcc"),
        ("<<x>x", "ppppc"),
        ("><x", "cpp"),
        ("<>", "pp"),
    ],
)
def test_delimiters_belong_to_the_plan_and_everything_outside_is_code(answer: str, expected: str):
    assert classes(answer) == [expected]


def test_an_answer_does_not_hear_of_the_delimiters_of_another():
    assert classes("<xx", "xx", "x>x", "", "<x>") == ["ppp", "cc", "ccc", "", "ppp"]


def test_a_prompt_may_open_the_plan():
    assert classes("xx>x", ">x", "xx", "x><", starts_open=True) == ["pppc", "pc", "pp", "ppp"]


@settings(deadline=None, max_examples=100)
@given(answers=st.lists(st.text("<>x", max_size=8), min_size=1, max_size=4), starts_open=st.booleans())
def test_agrees_with_reading_token_by_token(answers: list[str], starts_open: bool):
    expected = []
    for answer in answers:
        inside, marks = starts_open, ""
        for mark in answer:
            inside = inside or mark == "<"
            marks += "p" if inside else "c"
            inside = inside and mark != ">"
        expected.append(marks)
    assert classes(*answers, starts_open=starts_open) == expected


def test_samples_must_follow_each_other():
    with pytest.raises(ValueError, match="contiguous"):
        plan_tokens(torch.tensor([1, 1]), torch.tensor([1, 0]), OPEN, CLOSE)


def test_each_class_is_paid_its_own_advantage_and_the_plan_is_weighed_by_alpha():
    sample = torch.tensor([0, 0, 0, 1, 1])
    is_plan = torch.tensor([True, False, False, True, False])
    plan, code = torch.tensor([2.0, -1.0]), torch.tensor([0.5, -0.5])
    result = token_advantages(plan, code, sample, is_plan, HRDConfig())
    torch.testing.assert_close(result, torch.tensor([0.2, 0.5, 0.5, -0.1, -0.5]))
