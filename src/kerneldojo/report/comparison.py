"""Two runs side by side, problem by problem.

Runs are paired by problem: an easy problem is easy for both, so the difference within a problem varies far less than
the two figures do. The bootstrap draws problems and takes both runs' values of each; an interval of the difference that
does not contain 0 is evidence that the runs differ on problems like these. What cannot be paired is refused or counted:
a problem whose source differs, verdicts of another device, protocol or baseline (see `report.likeness`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np

from kerneldojo.report.bootstrap import Bootstrap
from kerneldojo.report.estimators import average_at_k
from kerneldojo.report.likeness import Unlike, unlike
from kerneldojo.report.measuring import Measure, is_correct, is_fast, speedup
from kerneldojo.report.metrics import MetricsConfig
from kerneldojo.report.outcomes import BEST, LAST, Attempts, Cell, Selection, attempts_of, problem_key
from kerneldojo.schema import Episode, Frozen


class NotComparable(ValueError):
    """Two runs cannot be compared; the text is one line."""


class Difference(Frozen):
    """One figure of both runs and B minus A, each a mean over the shared problems of avg@n."""

    name: str
    turn: str
    unit: Literal["problem"] = "problem"
    a: float
    b: float
    difference: float
    low: float | None = None
    """Lower end of the 95 % interval of the difference; None where there is only one problem, or where speedups differ
    by the same on all."""
    high: float | None = None
    count: int
    """Problems that both runs have scored samples of."""

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


class ProblemPair(Frozen):
    """One problem in both runs."""

    problem: str
    correct_a: float
    """Share of the samples that are correct in their best turn."""
    correct_b: float
    best_a: float | None
    """Best speedup over all samples and turns; None where none was timed."""
    best_b: float | None
    winner: Literal["a", "b", "tie"]
    """By the best speedup (differing by more than 2 %), else by the share of correct samples."""


class Comparison(Frozen):
    """What two runs have in common and where they differ."""

    a: str
    b: str
    differences: tuple[Difference, ...]
    problems: tuple[ProblemPair, ...]
    only_a: tuple[str, ...]
    """Problems that only A has."""
    only_b: tuple[str, ...]
    changed: tuple[str, ...]
    """Problems of one name whose sources differ; left out."""
    unscored: tuple[str, ...] = ()
    """Problems that one of the runs has no scored sample of (all are masked); in no figure and won by nobody."""
    wins: dict[str, int]
    """Problems by winner: `a`, `b`, `tie`."""
    unlike: tuple[Unlike, ...] = ()
    """Settings in which the runs differ."""


def compare(
    a: Iterable[Episode],
    b: Iterable[Episode],
    *,
    names: tuple[str, str] = ("A", "B"),
    config: MetricsConfig | None = None,
    anyway: bool = False,
    sampling: tuple[Mapping[str, object], Mapping[str, object]] = ({}, {}),
) -> Comparison:
    """Pair two runs by problem.

    Args:
        a: episodes of one run.
        b: episodes of the other.
        names: what to call them.
        config: how figures are taken.
        anyway: compare also where verdicts are of different devices, protocols or baselines.
        sampling: how answers were drawn in each, as their folders tell it (`run.sampling_of`).

    Raises:
        NotComparable: they share no problem, or their verdicts are not of one kind.
    """
    config = config or MetricsConfig()
    runs = list(a), list(b)
    different = unlike(*runs, sampling)
    if not anyway:
        _check_kinds(different)
    hashes = [{problem_key(episode.problem): episode.problem.hash for episode in run} for run in runs]
    shared = sorted(key for key in hashes[0] if key in hashes[1])
    changed = [key for key in shared if hashes[0][key] != hashes[1][key]]
    paired = [key for key in shared if key not in changed]
    if not paired:
        words = f", and of {len(changed)} with equal names the sources differ (as with another size)" if changed else ""
        raise NotComparable(f"the two runs share no problem{words}")
    attempts = [attempts_of(run, credited=config.credited) for run in runs]
    both = [Attempts({key: one.by_problem[key] for key in paired}) for one in attempts]
    bootstrap = Bootstrap(len(paired), config.seed, config.num_draws)
    unscored = [key for key in paired if not all(any(map(BEST.of, run.by_problem[key])) for run in both)]
    pairs = tuple(_pair(key, both[0], both[1]) for key in paired if key not in unscored)
    return Comparison(
        a=names[0],
        b=names[1],
        differences=tuple(_differences(both[0], both[1], bootstrap, config)),
        problems=pairs,
        only_a=tuple(key for key in hashes[0] if key not in hashes[1]),
        only_b=tuple(key for key in hashes[1] if key not in hashes[0]),
        changed=tuple(changed),
        unscored=tuple(unscored),
        wins={who: sum(pair.winner == who for pair in pairs) for who in ("a", "b", "tie")},
        unlike=tuple(different),
    )


def _check_kinds(different: Sequence[Unlike]) -> None:
    decisive = [one.words for one in different if one.is_of_verdicts]
    if decisive:
        words = " and ".join(decisive)
        raise NotComparable(f"the runs differ in {words}: figures are not comparable (--anyway compares them)")


def _differences(a: Attempts, b: Attempts, bootstrap: Bootstrap, config: MetricsConfig) -> Iterable[Difference]:
    chosen = [Measure("correct", is_correct)]
    chosen += [Measure("fast", is_fast(p, strictly=config.strictly), p=p) for p in config.thresholds if p > 0]
    chosen.append(Measure("speedup mean", speedup("zero"), failures="zero"))
    if a.is_untimed or b.is_untimed:
        chosen = [measure for measure in chosen if not measure.is_of_speed]
    for selection in (LAST, BEST):
        for measure in chosen:
            found = _difference(a, b, bootstrap, measure, selection)
            if found is not None:
                yield found


def _difference(
    a: Attempts, b: Attempts, bootstrap: Bootstrap, measure: Measure, selection: Selection
) -> Difference | None:
    columns = [np.array([_average(group, measure) for group in run.selected(selection)]) for run in (a, b)]
    present = ~(np.isnan(columns[0]) | np.isnan(columns[1]))
    means = [float(column[present].mean()) for column in columns] if present.any() else []
    least, most = measure.bounds or (0.0, 0.0)
    bounds = None if measure.bounds is None else (least - most, most - least)
    differences = np.where(present, columns[1] - columns[0], 0.0)
    found = bootstrap.ratio(differences, present.astype(np.float64), bounds=bounds)
    if found is None:
        return None
    name = f"fast_{measure.p:g}" if measure.name == "fast" else measure.name
    value, low, high = found
    return Difference(
        name=name,
        turn=selection.label,
        a=means[0],
        b=means[1],
        difference=value,
        low=low,
        high=high,
        count=int(present.sum()),
    )


def _average(group: Sequence[Cell], measure: Measure) -> float:
    values = [value for cell in group if (value := measure.value(cell)) is not None]
    return average_at_k(values, len(values)) if values else math.nan


def _pair(key: str, a: Attempts, b: Attempts) -> ProblemPair:
    cells = [[cell for attempt in run.by_problem[key] if (cell := BEST.of(attempt))] for run in (a, b)]
    correct = [sum(cell.correct for cell in group) / len(group) for group in cells]
    best = [max((cell.speedup for cell in group if cell.speedup is not None), default=None) for group in cells]
    return ProblemPair(
        problem=key,
        correct_a=correct[0],
        correct_b=correct[1],
        best_a=best[0],
        best_b=best[1],
        winner=_winner((best[0] or 0.0, correct[0]), (best[1] or 0.0, correct[1])),
    )


def _winner(a: tuple[float, float], b: tuple[float, float]) -> Literal["a", "b", "tie"]:
    if abs(a[0] - b[0]) > 0.02 * max(a[0], b[0]):
        return "a" if a[0] > b[0] else "b"
    if a[1] != b[1]:
        return "a" if a[1] > b[1] else "b"
    return "tie"
