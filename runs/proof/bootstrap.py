"""Intervals for paired differences: seeds and problems drawn again, each with everything in it.

    difference = paired(treatment - control)         # (seeds, problems), NaN where one of the two is missing
    difference.value, difference.low, difference.high

Two things would be different in another experiment: the seeds (a start and all that is drawn from there on) and the
problems. They are crossed, since all seeds are measured on the same problems.

*Seeds* are drawn again with repeats, each with all its problems (cluster bootstrap). That holds what differs between
seeds, and the noise of single cells. *Problems* are drawn again in the same way, and what a draw of them moves the
figure by is added to each draw of seeds, after it was shrunk: the spread of problem means holds the noise of cells too,
which would be counted twice (as in two-way cluster variances, V = V_seeds + V_problems - V_cells: Cameron, Gelbach and
Miller, Journal of Business & Economic Statistics 2011; drawing both at once counts it three times: Owen, Annals of
Applied Statistics 2007).

The percentile interval of so few clusters is too narrow: a draw of n clusters spreads by sqrt((n-1)/n) too little, and
knows nothing of Student's t. Both are mended by taking the percentiles at Phi(-sqrt(n/(n-1)) * t(n-1)) instead of at
2.5 % (Hesterberg, "What Teachers Should Know About the Bootstrap", The American Statistician 2015, section 4.3), with
n the number of seeds. Draws of fewer than six seeds have no percentiles so far out: there the interval is Student's,
with the standard deviation of the same draws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
NUM_DRAWS = 10_000
FEW = 6
"""Seeds below which percentiles say nothing."""


@dataclass(frozen=True)
class Difference:
    """A mean difference with its 95 % interval."""

    value: float
    low: float
    high: float
    num_seeds: int
    num_problems: int
    by_seed: tuple[float, ...]
    """Mean over problems for each seed, in the order of the rows."""

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval does not contain 0."""
        return self.low > 0 or self.high < 0


def paired(differences: Floats, *, seed: int = 0, num_draws: int = NUM_DRAWS) -> Difference | None:
    """Mean of (seeds, problems) differences and its interval; cells that are NaN count nowhere.

    With a single seed there is no interval: both ends are infinite. None where nothing is known at all.
    """
    known = ~np.isnan(differences)
    differences, known = differences[known.any(1)], known[known.any(1)]
    if not known.size or not known.any():
        return None
    num_seeds, num_problems = differences.shape
    values, weights = np.where(known, differences, 0.0), known.astype(np.float64)
    by_seed = tuple(float(one) for one in values.sum(1) / weights.sum(1))
    value, low, high = _quotient(values, weights, seed, num_draws)
    return Difference(value, low, high, num_seeds, num_problems, by_seed)


def ratio(above: Floats, below: Floats, *, seed: int = 0, num_draws: int = NUM_DRAWS) -> tuple[float, float, float]:
    """Ratio of the means of two (seeds, problems) tables, and its interval; cells count where both are known."""
    known = ~(np.isnan(above) | np.isnan(below))
    return _quotient(np.where(known, above, 0.0), np.where(known, below, 0.0), seed, num_draws)


def _quotient(above: Floats, below: Floats, seed: int, num_draws: int) -> tuple[float, float, float]:
    """Sum of `above` over sum of `below`, (seeds, problems) each, with its interval."""
    if below.sum() == 0:
        return math.inf, -math.inf, math.inf
    value = float(above.sum() / below.sum())
    if len(above) < 2:
        return value, -math.inf, math.inf
    generator = np.random.default_rng(seed)
    moved = [_drawn(generator, num_draws, above.sum(axis), below.sum(axis)) - value for axis in (1, 0)]
    residual = above - value * below
    by_problem, by_cell = (residual.sum(0) ** 2).sum(), (residual**2).sum()
    share = math.sqrt(max(0.0, 1 - by_cell / by_problem)) if by_problem > 0 else 0.0
    num_seeds = len(above)
    if num_seeds < FEW:
        # So few seeds may agree by chance, but not better than the noise of their cells allows.
        spread = max(num_seeds / (num_seeds - 1) * np.nanvar(moved[0]), by_cell / below.sum() ** 2)
        spread += share**2 * np.nanvar(moved[1])
        reach = student(0.975, num_seeds - 1) * math.sqrt(spread)
        return value, value - reach, value + reach
    low, high = np.nanquantile(value + moved[0] + share * moved[1], tails(num_seeds))
    return value, float(low), float(high)


def _drawn(generator: np.random.Generator, num_draws: int, above: Floats, below: Floats) -> Floats:
    """(num_draws,): the quotient over clusters drawn with repeats; NaN where nothing is below."""
    draws = generator.multinomial(len(above), np.full(len(above), 1 / len(above)), size=num_draws).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (draws @ above) / (draws @ below)


def tails(num_clusters: int, level: float = 0.95) -> tuple[float, float]:
    """The two percentiles, in [0, 1], between which an interval from so few clusters must lie."""
    quantile = student((1 + level) / 2, num_clusters - 1)
    low = NormalDist().cdf(-math.sqrt(num_clusters / (num_clusters - 1)) * quantile)
    return low, 1 - low


def student(probability: float, degrees: int) -> float:
    """Quantile of Student's t at `probability` > 1/2, by bisection of its distribution function."""
    low, high = 0.0, 1e4
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_below(middle, degrees) < probability else (low, middle)
    return (low + high) / 2


def _student_below(value: float, degrees: int) -> float:
    """P(T <= value) for value >= 0 (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(value / math.sqrt(degrees))
    cosine, sine = math.cos(angle), math.sin(angle)
    if degrees % 2:
        term, total = cosine, 0.0
        for k in range(3, degrees + 1, 2):
            total += term
            term *= cosine**2 * (k - 1) / k
        inside = 2 / math.pi * (angle + sine * total)
    else:
        term, total = 1.0, 0.0
        for k in range(2, degrees + 1, 2):
            total += term
            term *= cosine**2 * (k - 1) / k
        inside = sine * total
    return 0.5 + inside / 2


def band(curves: Floats) -> tuple[Floats, Floats, Floats]:
    """Mean over seeds of (seeds, points) curves, with Student's 95 % interval at each point; NaN is left out."""
    counts = (~np.isnan(curves)).sum(0)
    mean = np.nansum(curves, 0) / np.maximum(counts, 1)
    squares = np.nansum((curves - mean) ** 2, 0) / np.maximum(counts - 1, 1)
    factors = np.array([student(0.975, int(count) - 1) if count > 1 else np.nan for count in counts])
    reach = factors * np.sqrt(squares / np.maximum(counts, 1))
    return mean, mean - reach, mean + reach
