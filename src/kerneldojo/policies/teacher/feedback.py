"""Reading what the judge said, as any policy has to: from the words of the last message.

The words are looked for, not a fixed form, so that feedback may be written differently; where a message says nothing
that is understood, the verdict that the episode carries is read instead.
"""

from __future__ import annotations

import re
from typing import Literal

from kerneldojo.policies.policy import Request
from kerneldojo.schema import Evaluation, Frozen, Status

Complaint = Literal["compile", "crash", "incorrect", "exploit", "unparsed", "correct"]

_WORDS: tuple[tuple[Complaint, str], ...] = (
    ("exploit", r"exploit|cheat|without the work|no[ _]causal[ _]kernel|no[ _]own[ _]kernel|tampering"),
    ("unparsed", r"not parsed|no code (block )?(was )?found|answer was cut|could not be extracted"),
    (
        "compile",
        r"compile[ _]?error|did not compile|does not compile|not be read or compiled|compilation|syntax ?error",
    ),
    (
        "crash",
        r"runtime[ _]error|failed while running|did not finish|timed? ?out|(out[ _]of|more) memory|out_of_memory|crash",
    ),
    ("incorrect", r"\bincorrect\b|\bwrong\b|mismatch|not correct"),
    ("correct", r"\bcorrect\b|\bpassed\b"),
)
_STATUS: dict[Status, Complaint] = {
    Status.PASSED: "correct",
    Status.INCORRECT: "incorrect",
    Status.EXPLOIT: "exploit",
    Status.COMPILE_ERROR: "compile",
    Status.RUNTIME_ERROR: "crash",
    Status.TIMEOUT: "crash",
    Status.OUT_OF_MEMORY: "crash",
}
_SPEEDUP = re.compile(r"(\d+(?:\.\d+)?) ?(?:x|times)\b|speedup[^\d\n]{0,20}(\d+(?:\.\d+)?)", re.IGNORECASE)
_COVERAGE = re.compile(
    r"(?:coverage|own)[^\d\n]{0,20}(\d+(?:\.\d+)?) ?(%?)|(\d+(?:\.\d+)?)% of the device", re.IGNORECASE
)


class Feedback(Frozen):
    """What was understood of the last verdict."""

    complaint: Complaint
    speedup: float | None = None
    coverage: float | None = None
    """In [0, 1]."""


def read_feedback(request: Request) -> Feedback | None:
    """Read the last verdict; None in the first turn, or where nothing tells what became of the last answer."""
    if not request.episode.turns:
        return None
    last = request.episode.turns[-1]
    said = request.messages[-1].content if request.messages and request.messages[-1].role == "user" else last.feedback
    if last.feedback and last.feedback in said:
        said = last.feedback  # what else is said may quote older verdicts
    return read_words(said) or (read_evaluation(last.evaluation) if last.evaluation else None)


def read_words(text: str) -> Feedback | None:
    """Understand feedback that is written as text; the complaint that is named first counts."""
    found: list[tuple[int, Complaint]] = []
    for complaint, words in _WORDS:
        match = re.search(words, text, re.IGNORECASE)
        if match:
            found.append((match.start(), complaint))
    if not found:
        return None
    complaint = min(found)[1]
    if complaint != "correct":
        return Feedback(complaint=complaint)
    speedup, coverage = _SPEEDUP.search(text), _COVERAGE.search(text)
    return Feedback(
        complaint="correct",
        speedup=float(speedup[1] or speedup[2]) if speedup else None,
        coverage=_share(coverage) if coverage else None,
    )


def _share(coverage: re.Match[str]) -> float:
    """Coverage as a share, whether it was written as one or in per cent."""
    if coverage[3]:
        return float(coverage[3]) / 100
    return float(coverage[1]) / (100 if coverage[2] else 1)


def read_evaluation(evaluation: Evaluation) -> Feedback | None:
    """Understand a verdict; None where it does not speak of the candidate."""
    complaint = _STATUS.get(evaluation.status)
    if complaint is None:
        return None
    return Feedback(complaint=complaint, speedup=evaluation.speedup, coverage=evaluation.coverage)
