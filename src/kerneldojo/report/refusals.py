"""Answers that cannot be judged: how many, of how many problems, and why.

A degenerate problem, or a language that a device does not run, says nothing of the policy, and so such answers are in
no figure. But a benchmark over 90 problems is another one than over 100, so that whoever reads its figures is told what
was left out, and of each kind one reason.
"""

from __future__ import annotations

from collections.abc import Sequence

from kerneldojo.report.outcomes import problem_key
from kerneldojo.schema import Episode, Frozen


class Refusal(Frozen):
    """The refused answers of one kind."""

    status: str
    """`invalid_problem` or `unsupported_on_device`."""
    answers: int
    problems: int
    """How many problems they are of."""
    first_problem: str
    first_reason: str
    """What the judge said of the first of them."""


def refusals(episodes: Sequence[Episode]) -> tuple[Refusal, ...]:
    """The refused answers of a run by kind, in the order in which the kinds first appear."""
    found: dict[str, list[tuple[str, str]]] = {}
    for episode in episodes:
        for turn in episode.turns:
            if turn.evaluation is not None and turn.evaluation.status.is_refusal:
                entry = problem_key(episode.problem), turn.evaluation.message
                found.setdefault(turn.evaluation.status.value, []).append(entry)
    return tuple(
        Refusal(
            status=status,
            answers=len(entries),
            problems=len({problem for problem, _ in entries}),
            first_problem=entries[0][0],
            first_reason=entries[0][1],
        )
        for status, entries in found.items()
    )
