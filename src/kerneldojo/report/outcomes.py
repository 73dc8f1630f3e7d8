"""What a figure is made of: for each attempt at a problem, what became of each of its turns.

Three things can be said of a turn, and they are never mixed up. It was *scored*: the policy's doing, right or wrong (an
answer without code is wrong). It is *masked*: our fault, or a problem or device that cannot judge, and then no figure
knows of it but the count of masked turns. Or it is *absent*: it was never played, for the episode had ended.

An attempt that has no turn at all since not even its first prompt fits the limit of tokens is a failure in every
figure. Left out it would flatter: the problems with long prompts are not the easy ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from kerneldojo.rewards import credited_speedup
from kerneldojo.schema import Episode, Evaluation, Problem, Turn

Against = Literal["eager", "compile"]
"""What a speedup is measured against: eager PyTorch, or torch.compile."""

NO_CODE = "no_code"
"""Outcome of an answer in which no code was found."""
POLICY_FAILED = "policy_failed"
"""Outcome of a turn for which the policy gave no answer: our fault, masked."""

Verdicts = Mapping[tuple[str, str], Evaluation]
"""Verdicts against another baseline, by (problem hash, candidate hash)."""


@dataclass(frozen=True)
class Cell:
    """What became of one turn."""

    outcome: str
    """A status of the judge, `no_code` or `policy_failed`."""
    scored: bool
    """Whether it speaks of the policy; False for a masked turn."""
    correct: bool = False
    speedup: float | None = None
    """Over the baseline asked for; None where not correct, or where nothing was timed."""
    coverage: float | None = None
    exploits: tuple[str, ...] = ()
    judged: bool = False
    """Whether it cost a verdict."""
    tokens: int = 0
    """Generated tokens that it cost, as far as the policy counts them."""

    @property
    def rank(self) -> tuple[bool, float]:
        """Better is larger: right before wrong, then by speedup (an untimed pass below every timed one)."""
        return self.correct, -1.0 if self.speedup is None else self.speedup


TOO_LONG = Cell("prompt_too_long", scored=True)
"""What stands for an attempt whose first prompt does not fit, whichever turn is asked for."""


@dataclass(frozen=True)
class Attempt:
    """One episode as figures see it."""

    problem: str
    """See `problem_key`."""
    sample: int
    cells: tuple[Cell, ...]
    """One a turn that was played."""
    is_too_long: bool = False
    """Whether it has none, since its first prompt does not fit `PlayConfig.max_prompt_tokens`."""


@dataclass(frozen=True)
class Selection:
    """Which of an attempt's turns stands for it.

    `turn`: the t-th alone (t counted from 1). `last`: the last that was scored. `best`: the best of those scored among
    turns 1 to t, or among all with t = None: an oracle over the history, for it picks with the very verdict it reports.
    """

    kind: Literal["turn", "last", "best"]
    t: int | None = None

    @property
    def label(self) -> str:
        """As figures name it."""
        if self.kind == "turn":
            return f"turn {self.t}"
        if self.kind == "last":
            return "last turn"
        return "best of history" if self.t is None else f"best of turns 1-{self.t}"

    def of(self, attempt: Attempt) -> Cell | None:
        """The turn that stands for `attempt`; None if there is none that was scored."""
        if attempt.is_too_long:
            return TOO_LONG
        if self.kind == "turn":
            assert self.t is not None
            cells = attempt.cells[self.t - 1 : self.t]
        else:
            cells = attempt.cells if self.t is None else attempt.cells[: self.t]
        scored = [cell for cell in cells if cell.scored]
        if not scored:
            return None
        return max(scored, key=lambda cell: cell.rank) if self.kind == "best" else scored[-1]


LAST = Selection("last")
BEST = Selection("best")


@dataclass(frozen=True)
class Attempts:
    """All attempts of a run, grouped by problem; problems in the order of their keys, whichever ended first: what
    is drawn at random by place is then the same for the same episodes."""

    by_problem: dict[str, list[Attempt]] = field(default_factory=dict)

    @property
    def problems(self) -> list[str]:
        """Keys of the problems."""
        return list(self.by_problem)

    @property
    def num_turns(self) -> int:
        """Turns of the longest attempt."""
        return max((len(one.cells) for group in self.by_problem.values() for one in group), default=0)

    @property
    def num_samples(self) -> int:
        """Attempts at the problem that has most of them."""
        return max((len(group) for group in self.by_problem.values()), default=0)

    @property
    def is_untimed(self) -> bool:
        """Whether answers are right and none was timed, as on a CPU: then nothing can be said of speed."""
        right = [cell for cell in self.cells() if cell.correct and cell.scored]
        return bool(right) and all(cell.speedup is None for cell in right)

    def selected(self, selection: Selection) -> list[list[Cell]]:
        """For each problem, the cells of its attempts that `selection` finds; attempts without one are left out."""
        return [
            [cell for attempt in group if (cell := selection.of(attempt)) is not None]
            for group in self.by_problem.values()
        ]

    def cells(self) -> Iterable[Cell]:
        """Every turn that was played, masked ones too."""
        return (cell for group in self.by_problem.values() for attempt in group for cell in attempt.cells)


def problem_key(problem: Problem) -> str:
    """How a problem is known in a report, the same in every run: `suite/level/name`."""
    level = [] if problem.level is None else [str(problem.level)]
    return "/".join([problem.suite, *level, problem.name])


def cell_of(turn: Turn, evaluation: Evaluation | None, *, credited: bool = False) -> Cell:
    """What became of `turn`, by `evaluation` (the turn's own, or one against another baseline)."""
    tokens = turn.answer.usage.answer_tokens
    if turn.answer.finish == "failed":
        return Cell(POLICY_FAILED, scored=False, tokens=tokens)
    if evaluation is None:
        return Cell(NO_CODE, scored=turn.candidate is None, correct=False, tokens=tokens)
    if not evaluation.status.is_about_candidate:
        return Cell(evaluation.status.value, scored=False, judged=True, tokens=tokens)
    speedup = credited_speedup(evaluation) if credited and evaluation.correct else evaluation.speedup
    if speedup is not None and not (math.isfinite(speedup) and speedup > 0):
        speedup = None
    names = tuple(dict.fromkeys(exploit.name for exploit in evaluation.exploits))
    status, coverage = evaluation.status.value, evaluation.coverage
    return Cell(status, True, evaluation.correct, speedup, coverage, names, judged=True, tokens=tokens)


def attempts_of(episodes: Iterable[Episode], *, credited: bool = False, verdicts: Verdicts | None = None) -> Attempts:
    """Group episodes by problem and read off what became of each turn.

    Args:
        episodes: finished episodes.
        credited: take a measured speedup whose interval contains 1 as 1, as rewards do; KernelBench takes it as it is.
        verdicts: verdicts against another baseline, to be used in place of the turns' own for answers that passed.
            A turn that passed but has none there is masked.
    """
    grouped: dict[str, list[Attempt]] = {}
    for episode in episodes:
        cells = tuple(_cell(episode, turn, credited, verdicts) for turn in episode.turns)
        key = problem_key(episode.problem)
        is_too_long = episode.finish == "budget" and not episode.turns
        grouped.setdefault(key, []).append(Attempt(key, episode.sample, cells, is_too_long))
    for group in grouped.values():
        group.sort(key=lambda attempt: attempt.sample)
    return Attempts(dict(sorted(grouped.items())))


def _cell(episode: Episode, turn: Turn, credited: bool, verdicts: Verdicts | None) -> Cell:
    own = cell_of(turn, turn.evaluation, credited=credited)
    if verdicts is None or not own.correct:
        return own
    assert turn.candidate is not None
    other = verdicts.get((episode.problem.hash, turn.candidate.hash))
    if other is None:
        return replace(own, scored=False)
    return cell_of(turn, other, credited=credited)
