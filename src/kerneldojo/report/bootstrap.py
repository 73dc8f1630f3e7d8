"""Confidence intervals by resampling problems.

The samples of one problem are alike: eight answers to an easy problem are not eight independent facts. So what is drawn
again, with repeats, is whole problems with everything in them (the cluster bootstrap: Davison and Hinkley, Bootstrap
Methods and their Application, section 3.8), and the interval spans the middle 95 % of the figure over the draws. It
speaks of other problems like these; what would change with other samples is inside it.

Where all problems are alike (all solved, say) every draw is, too, and would seem to leave no doubt. But eight solved
problems do not exclude that a third of all are otherwise. So then the interval is what they do not exclude: as
Clopper and Pearson (1934) have it for shares, a part q of others that n problems miss with probability
(1 - q) ** n = 2.5 %, each as far off as the figure can be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MISSED = 0.025
"""What a 95 % interval leaves out on either side: of draws, or of chances that problems which are otherwise are all
missed."""
ALIKE = 1e-9
"""Draws that differ by less, relative to the figure, differ by rounding."""


def same(value: Floats) -> Floats:
    """The identity, for figures that are plain means."""
    return value


@dataclass(frozen=True)
class Bootstrap:
    """Draws of `num_problems` problems with repeats, the same ones for every figure, so that figures can be paired."""

    num_problems: int
    seed: int = 0
    num_draws: int = 2000

    @cached_property
    def weights(self) -> Floats:
        """(num_draws, num_problems): how often each problem is in each draw."""
        generator = np.random.default_rng(self.seed)
        share = np.full(self.num_problems, 1 / self.num_problems)
        return generator.multinomial(self.num_problems, share, size=self.num_draws).astype(np.float64)

    def ratio(
        self,
        numerators: Floats,
        denominators: Floats,
        finish: Callable[[Floats], Floats] = same,
        bounds: tuple[float, float] | None = None,
    ) -> tuple[float, float | None, float | None] | None:
        """`finish(sum of numerators / sum of denominators)` with its 95 % interval.

        Args:
            numerators: (num_problems,) what each problem adds above the line.
            denominators: (num_problems,) what it adds below: 1 a problem, or its number of samples.
            finish: applied to the ratio, for example `np.exp` for a geometric mean.
            bounds: least and largest that the figure can be; None if it has none.

        Returns:
            (value, low, high); None if the denominators sum to zero. Draws without a denominator are left out. Of one
            problem alone nobody can say how far others lie from it: then there is a value and no interval. Nor can
            anybody of several that are all alike, where the figure has no bounds.
        """
        if denominators.sum() <= 0:
            return None
        value = float(finish(np.asarray(numerators.sum() / denominators.sum())))
        if np.count_nonzero(denominators) < 2:
            return value, None, None
        below = self.weights @ denominators
        kept = below > 0
        draws = finish((self.weights @ numerators)[kept] / below[kept])
        if np.ptp(draws) > ALIKE * max(1.0, abs(value)):
            low, high = np.quantile(draws, (MISSED, 1 - MISSED))
            return value, float(low), float(high)
        if bounds is None:
            return value, None, None
        unseen = 1 - MISSED ** (1 / np.count_nonzero(denominators))
        return value, value - unseen * (value - bounds[0]), value + unseen * (bounds[1] - value)
