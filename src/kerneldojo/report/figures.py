"""A figure: a number that says what it counts, which turn stands for an attempt, against what, and how sure it is.

"Fast_1.2 = 31 %" means nothing alone. The share of all samples at turn 3 and the share of problems with one good answer
among 16 x 8 differ by a factor of three on the same run, and papers report either. So no figure here travels without
its unit and its turn.
"""

from __future__ import annotations

from typing import Literal

from kerneldojo.report.outcomes import Against
from kerneldojo.schema import Frozen

Failures = Literal["zero", "one", "left out"]
"""What a failed attempt counts as in a mean of speedups: 0, 1 (the reference is kept), or nothing at all."""


class Figure(Frozen):
    """One number of a report."""

    name: Literal["correct", "fast", "speedup mean", "speedup geometric", "coverage"]
    """What is measured. `fast` with its `p` is KernelBench's fast_p."""
    value: float | None
    """None where there is nothing to measure (no times on a CPU, no correct answer to take a mean over)."""
    low: float | None = None
    """Lower end of the 95 % interval over problems."""
    high: float | None = None
    """Upper end."""
    unit: Literal["sample", "problem"]
    """What `value` is a share or mean of: all samples pooled, or problems (each counting once)."""
    turn: str
    """Which turn stands for an attempt: `turn 2`, `last turn`, `best of history`, `best of turns 1-2`, `every turn`."""
    aggregate: Literal["all", "average", "best"] = "all"
    """Over a problem's samples: `all` pooled, `average` of k (avg@k), or expected `best` of k (best@k)."""
    k: int | None = None
    """The k of avg@k and best@k."""
    p: float | None = None
    """The threshold of fast_p."""
    against: Against = "eager"
    """What speedups are over."""
    failures: Failures | None = None
    """For speedups: what a failed attempt counts as."""
    count: int = 0
    """How many samples or problems it was taken over; fewer than there are where some were masked or absent."""

    @property
    def title(self) -> str:
        """Name with its threshold and k: `fast_1.2`, `best@8 correct`."""
        name = f"fast_{self.p:g}" if self.name == "fast" else self.name
        return (
            name if self.aggregate == "all" else f"{'avg' if self.aggregate == 'average' else 'best'}@{self.k} {name}"
        )
