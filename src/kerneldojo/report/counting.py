"""What is counted rather than measured: how much there is, how answers ended, which exploits, how much was covered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from kerneldojo.report.outcomes import Attempts, Verdicts
from kerneldojo.schema import Episode, Frozen


class Counts(Frozen):
    """How much there is, and how much of it could not be scored."""

    problems: int
    episodes: int
    turns: int
    """Turns that were played."""
    masked_turns: int
    """Of these, turns left out of every figure: our faults, problems or devices that cannot judge."""
    cut_episodes: int
    """Episodes that ended by a refusal, a fault of ours or their token budget, before all turns were played."""
    samples: int
    """Attempts at the problem that has most."""
    turns_each: int
    """Turns of the longest episode."""
    too_long_samples: int = 0
    """Attempts without a turn, since not even the first prompt fits; failures in every figure."""
    too_long_problems: int = 0
    """Problems that these are of."""
    planned_episodes: int | None = None
    """Episodes that the run was asked for; None where it is not known."""

    @property
    def num_missing(self) -> int:
        """Episodes that were asked for and have not ended; which these are is no chance, for slow ones come last."""
        return max((self.planned_episodes or 0) - self.episodes, 0)


class AgainstCompile(Frozen):
    """How much of a run was judged against torch.compile too."""

    passed: int
    """Distinct answers that passed."""
    judged: int
    """Of these, how many have a verdict against torch.compile."""

    @property
    def is_partial(self) -> bool:
        """Whether answers are missing. They are in no figure against torch.compile, though failures are."""
        return self.judged < self.passed


class Share(Frozen):
    """How many turns ended in one way."""

    name: str
    count: int
    share: float
    """Of all scored turns; of all turns for masked outcomes."""


class CoverageFigures(Frozen):
    """Coverage (device time in own kernels over all device time) of the right answers whose coverage is known."""

    count: int
    mean: float | None
    quantiles: dict[str, float]
    """At 10, 25, 50, 75 and 90 %."""


def counts_of(episodes: Sequence[Episode], attempts: Attempts, planned: int | None = None) -> Counts:
    """How much there is, and how much of it could not be scored."""
    cells = list(attempts.cells())
    return Counts(
        problems=len(attempts.problems),
        episodes=len(episodes),
        turns=len(cells),
        masked_turns=sum(not cell.scored for cell in cells),
        cut_episodes=sum(episode.finish in ("refused", "fault", "budget", "cancelled") for episode in episodes),
        samples=attempts.num_samples,
        turns_each=attempts.num_turns,
        too_long_samples=sum(one.is_too_long for group in attempts.by_problem.values() for one in group),
        too_long_problems=sum(any(one.is_too_long for one in group) for group in attempts.by_problem.values()),
        planned_episodes=planned,
    )


def against_compile_of(episodes: Sequence[Episode], verdicts: Verdicts) -> AgainstCompile:
    """How many of the distinct answers that passed have a verdict against torch.compile."""
    passed = {
        (episode.problem.hash, turn.candidate.hash)
        for episode in episodes
        for turn in episode.turns
        if turn.is_correct and turn.candidate is not None
    }
    return AgainstCompile(passed=len(passed), judged=sum(one in verdicts for one in passed))


def statuses(attempts: Attempts) -> tuple[Share, ...]:
    """Every turn's outcome, most frequent first."""
    cells = list(attempts.cells())
    scored = sum(cell.scored for cell in cells)
    counted = Counter((cell.outcome, cell.scored) for cell in cells)
    return tuple(
        Share(name=name, count=count, share=count / (scored if is_scored else len(cells)))
        for (name, is_scored), count in counted.most_common()
    )


def statuses_by_turn(attempts: Attempts) -> tuple[dict[str, int], ...]:
    """The outcomes of each turn, most frequent first."""
    rows: list[Counter[str]] = [Counter() for _ in range(attempts.num_turns)]
    for group in attempts.by_problem.values():
        for attempt in group:
            for row, cell in zip(rows, attempt.cells, strict=False):
                row[cell.outcome] += 1
    return tuple(dict(row.most_common()) for row in rows)


def exploits(attempts: Attempts) -> tuple[Share, ...]:
    """Scored turns by class of exploit, most frequent first."""
    scored = [cell for cell in attempts.cells() if cell.scored]
    counted = Counter(name for cell in scored for name in cell.exploits)
    return tuple(Share(name=name, count=count, share=count / len(scored)) for name, count in counted.most_common())


def coverage(attempts: Attempts) -> CoverageFigures:
    """Coverage of the right answers."""
    known = [cell.coverage for cell in attempts.cells() if cell.correct and cell.coverage is not None]
    if not known:
        return CoverageFigures(count=0, mean=None, quantiles={})
    levels = (10, 25, 50, 75, 90)
    found = np.quantile(np.array(known), [level / 100 for level in levels])
    quantiles = {str(level): float(value) for level, value in zip(levels, found, strict=True)}
    return CoverageFigures(count=len(known), mean=float(np.mean(known)), quantiles=quantiles)
