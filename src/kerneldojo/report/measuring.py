"""Figures from attempts: each is a ratio of two sums over problems, so that one bootstrap serves them all.

Per sample, the sums run over all attempts pooled (Dr. Kernel's tables); per problem, each problem contributes avg@k or
best@k of its own attempts, and counts once (Kevin's and TritonRL's).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from kerneldojo.report.bootstrap import Bootstrap, Floats, same
from kerneldojo.report.estimators import average_at_k, best_at_k
from kerneldojo.report.figures import Failures, Figure
from kerneldojo.report.outcomes import Against, Attempts, Cell, Selection

LOG_OF_NOTHING = -1e9
"""Stands for log 0 in sums: large enough that any mean with it in is e to the minus a lot, and never NaN."""

Value = Callable[[Cell], "float | None"]
"""What a cell counts as in a mean; None if it has no place in it."""


def is_correct(cell: Cell) -> float:
    """1 for a right answer."""
    return float(cell.correct)


def is_fast(p: float, *, strictly: bool = True) -> Value:
    """1 for a right answer more than `p` times as fast as the baseline (at least `p` times, unless `strictly`).

    KernelBench scores with `>`, Dr. Kernel's text says at least. With p = 0 it is correctness, and needs no times; for
    other p a right answer that was not timed has no place.
    """

    def fast(cell: Cell) -> float | None:
        if not cell.correct:
            return 0.0
        if p == 0:
            return 1.0
        if cell.speedup is None:
            return None
        return float(cell.speedup > p if strictly else cell.speedup >= p)

    return fast


def speedup(failures: Failures, *, logarithm: bool = False) -> Value:
    """The speedup (or its logarithm, for geometric means); a failed attempt counts as `failures` says."""

    def value(cell: Cell) -> float | None:
        if cell.correct:
            if cell.speedup is None:
                return None
            return math.log(cell.speedup) if logarithm else cell.speedup
        if failures == "left out":
            return None
        if failures == "one":
            return 0.0 if logarithm else 1.0
        return LOG_OF_NOTHING if logarithm else 0.0

    return value


@dataclass(frozen=True)
class Measure:
    """One kind of figure before it is taken: what each cell counts as, and what it is called."""

    name: Literal["correct", "fast", "speedup mean", "speedup geometric"]
    value: Value
    p: float | None = None
    failures: Failures | None = None
    finish: Callable[[Floats], Floats] = same

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Least and largest that it can be; None for speedups."""
        return (0.0, 1.0) if self.name in ("correct", "fast") else None

    @property
    def is_of_speed(self) -> bool:
        """Whether it says nothing where no answer was timed; that failures are slow would be no finding then."""
        return self.name != "correct" and self.p != 0


def measures(thresholds: Sequence[float], *, strictly: bool = True) -> list[Measure]:
    """Correctness, fast_p at `thresholds`, and the means of speedups."""
    fast = [Measure("fast", is_fast(p, strictly=strictly), p=p) for p in thresholds]
    kinds: tuple[Failures, ...] = ("zero", "left out")
    means = [Measure("speedup mean", speedup(kind), failures=kind) for kind in kinds]
    kinds = ("zero", "one", "left out")
    geometric = [
        Measure("speedup geometric", speedup(kind, logarithm=True), failures=kind, finish=np.exp) for kind in kinds
    ]
    return [Measure("correct", is_correct), *fast, *means, *geometric]


@dataclass(frozen=True)
class Taker:
    """Takes figures from one set of attempts."""

    attempts: Attempts
    bootstrap: Bootstrap
    against: Against = "eager"

    @cached_property
    def is_untimed(self) -> bool:
        """See `Attempts`."""
        return self.attempts.is_untimed

    def per_sample(self, measure: Measure, selection: Selection) -> Figure:
        """Over all samples pooled."""
        groups = self._values(measure, selection)
        sums = np.array([sum(group) for group in groups], dtype=np.float64)
        counts = np.array([len(group) for group in groups], dtype=np.float64)
        figure = Figure(
            name=measure.name,
            value=None,
            unit="sample",
            turn=selection.label,
            p=measure.p,
            failures=measure.failures,
            against=self.against,
            count=int(counts.sum()),
        )
        return self._with_value(figure, sums, counts, measure)

    def per_problem(
        self, measure: Measure, selection: Selection, aggregate: Literal["average", "best"], k: int
    ) -> Figure:
        """Over problems: avg@k or best@k of each; a problem with fewer than k scored samples is left out."""
        groups = self._values(measure, selection)
        estimate = average_at_k if aggregate == "average" else best_at_k
        present = np.array([len(group) >= k for group in groups], dtype=np.float64)
        values = np.array([estimate(group, k) if len(group) >= k else 0.0 for group in groups], dtype=np.float64)
        figure = Figure(
            name=measure.name,
            value=None,
            unit="problem",
            turn=selection.label,
            aggregate=aggregate,
            k=k,
            p=measure.p,
            failures=measure.failures,
            against=self.against,
            count=int(present.sum()),
        )
        return self._with_value(figure, values, present, measure)

    def _values(self, measure: Measure, selection: Selection) -> list[list[float]]:
        groups = self.attempts.selected(selection)
        if measure.is_of_speed and self.is_untimed:
            return [[] for _ in groups]
        return [[value for cell in group if (value := measure.value(cell)) is not None] for group in groups]

    def _with_value(self, figure: Figure, numerators: Floats, denominators: Floats, measure: Measure) -> Figure:
        if not self.attempts.problems:
            return figure
        found = self.bootstrap.ratio(numerators, denominators, measure.finish, measure.bounds)
        if found is None:
            return figure
        value, low, high = found
        return figure.model_copy(update={"value": value, "low": low, "high": high})
