"""From windows to a time per call: pure functions of what the judge's clock read.

A window is `length` calls in a row, timed from outside by the judge. Its wall time is a fixed overhead (signalling,
switching contexts, the judge's own sampling of the outputs) plus `length` times the cost of a call, so the cost of a
call is the slope over windows of different, secret lengths. Times here are in microseconds.

Most of the noise is in that overhead: after the last call the device switches to the judge's context, which takes 240
or 310 us by turns. A side also says when it was done, which is before the switch and three times as sharp, but a claim.
So its slope stands only where the judge's own clock bears it out: work that goes on after "done" is in the judge's
slope, and then that is what counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

SYSTEMATIC_US = 5.0
"""What one call alone may cost beyond the fixed overhead for reasons of its own: cold translation caches, a context
that was just switched in. Measured on an H200: 2 to 4 us."""
MOST_DOUBT = 0.05
"""How unsure the judge's own slope may be to bear out another: half its interval over itself. Whoever hides work behind
"done" gains no more than that, since more is seen."""
BIAS = 0.01
"""How far below the judge's interval the other may lie: reading samples from one output, half of it still in the cache,
is a little quicker than from many."""
RESAMPLES = 200
"""Bootstrap samples behind every interval."""


@dataclass(frozen=True)
class Window:
    """One timed window."""

    length: int
    """Calls in it, at least 1."""
    wall_us: float
    """The judge's clock."""
    undisturbed: bool = True
    """False if something else was seen to use the device; such windows are left out."""
    done_us: float | None = None
    """Until the side said that it was done: a claim."""


@dataclass(frozen=True)
class Fit:
    """A robust line through windows."""

    per_call_us: float
    """Slope."""
    interval_us: tuple[float, float]
    """95 % interval of the slope."""
    overhead_us: float
    """Wall time of a window of no calls, extrapolated."""
    single_us: float | None
    """Shortest of the windows of one call; None without any. What disturbs a single window lengthens it (bringing a
    context in takes 70 us more in up to half of all windows), so the quickest tells what one call alone needs."""
    single_error_us: float
    """Half the 95 % interval of `single_us`."""
    num_windows: int
    num_calls: int
    is_told: bool = False
    """Whether the slope is that of the side's own "done", which the judge's clock bears out."""

    @property
    def around_us(self) -> float:
        """What a window costs around its calls, by its windows of one call where there are any; never negative."""
        around = self.overhead_us if self.single_us is None else self.single_us - self.per_call_us
        return max(around, 0.0)

    @property
    def relative_error(self) -> float:
        """Half the interval over the slope."""
        return _relative_error(self.per_call_us, self.interval_us)


@dataclass(frozen=True)
class Charge:
    """What a call is charged with, and why."""

    per_call_us: float
    interval_us: tuple[float, float]
    batched: bool
    """Whether calls in a row cost so much less than one alone that they were not computed one by one."""
    evidence: str = ""
    """For `batched`: the two figures."""


def fit(windows: Sequence[Window]) -> Fit:
    """The weighted Theil-Sen slope: the median slope of all pairs of windows, a pair weighing as its lengths differ.

    Up to 29 % of the windows may be arbitrarily wrong without moving it far. It is the slope of `done_us` where that
    of `wall_us` bears it out.

    Raises:
        ValueError: fewer than two different lengths among the undisturbed windows.
    """
    kept = [window for window in windows if window.undisturbed]
    lengths = np.array([window.length for window in kept], dtype=np.float64)
    walls = np.array([window.wall_us for window in kept], dtype=np.float64)
    if len(set(lengths.tolist())) < 2:
        raise ValueError("a slope needs windows of at least two lengths")
    wall_slope, wall_interval = slope, interval = _slope_with_interval(lengths, walls)
    told = [window.done_us for window in kept if window.done_us is not None]
    is_told = False
    if len(told) == len(kept):
        told_slope, told_interval = _slope_with_interval(lengths, np.array(told, dtype=np.float64))
        is_sharp = _relative_error(wall_slope, wall_interval) <= MOST_DOUBT
        if is_sharp and told_slope * (1 + BIAS) >= wall_interval[0]:
            slope, interval, is_told = told_slope, told_interval, True
    single, error = _shortest_with_error(walls[lengths == 1])
    return Fit(
        per_call_us=slope,
        interval_us=interval,
        overhead_us=float(np.median(walls - wall_slope * lengths)),
        single_us=single,
        single_error_us=error,
        num_windows=len(kept),
        num_calls=int(lengths.sum()),
        is_told=is_told,
    )


def charge(measured: Fit, overhead_us: float, overhead_error_us: float) -> Charge:
    """What a call costs, given what a window costs around its calls.

    One call alone takes its time on the host, then its time on the device. Calls in a row overlap the two, so that each
    costs the larger: never less than half of what one alone costs. A slope below that half, beyond the errors, means
    that calls were not computed one by one; then one alone is what counts.

    Args:
        measured: the candidate's windows.
        overhead_us: fixed cost of a window: `Fit.around_us` of a process that is trusted for it, the reference
            runner's.
        overhead_error_us: half the 95 % interval of that; `Fit.single_error_us` of the same process will do.
    """
    plain = Charge(measured.per_call_us, measured.interval_us, batched=False)
    if measured.single_us is None:
        return plain
    alone = measured.single_us - overhead_us
    error = math.hypot(measured.single_error_us, overhead_error_us)
    if alone - error - SYSTEMATIC_US <= 2 * measured.interval_us[1]:
        return plain
    evidence = f"a call alone takes {alone:.1f} us, calls in a row {measured.per_call_us:.1f} us each"
    return Charge(alone, (max(alone - error, 0.0), alone + error), batched=True, evidence=evidence)


def host_bound(device_us: float, per_call_us: float) -> bool:
    """Whether the device was busy for less than 80 % of the time, so that launching is what was measured."""
    return device_us < 0.8 * per_call_us


def believable_claim(claimed_us: float, measured: Fit) -> bool:
    """Whether a contestant's own figure for the device is compatible with the judge's clock: not above it."""
    return 0 < claimed_us <= measured.interval_us[1] * 1.05


def covered(claimed: float, full_us: float, silenced_us: float, error_us: float) -> float:
    """Cut a claimed coverage to what the judge's clock allows.

    With its own kernels silent a candidate still spends the time that everything else takes; what vanished is the most
    that its own kernels can account for.

    Args:
        claimed: own device time over total device time, as profiled in the contestant.
        full_us: judge's time of a call.
        silenced_us: judge's time of a call with own kernels silent.
        error_us: half the 95 % interval of the difference.
    """
    allowed = (full_us - silenced_us + error_us) / full_us
    return max(0.0, min(claimed, allowed, 1.0))


def plan_lengths(longest: int, count: int, draws: Sequence[float]) -> list[int]:
    """Lengths for `count` windows: a third of one call, a third near `longest`, the rest anywhere between.

    Args:
        longest: most calls that a window may have.
        count: windows.
        draws: at least `2 * count` secret numbers in [0, 1).
    """
    if longest < 2:
        return [1] * count
    lengths: list[int] = []
    for index in range(count):
        draw = draws[index]
        if index % 3 == 0:
            lengths.append(1)
        elif index % 3 == 1:
            lengths.append(longest - int(draw * max(1, longest // 8)))
        else:
            lengths.append(2 + int(draw * (longest - 1)))
    order = sorted(range(count), key=lambda index: draws[count + index])
    return [lengths[index] for index in order]


def longest_window(per_call_us: float, num_sets: int, target_us: float = 3000.0) -> int:
    """How many calls the longest window should have: long enough to drown the noise, one input set a call."""
    wanted = math.ceil(target_us / max(per_call_us, 1e-3))
    return max(2, min(num_sets, max(wanted, 4)))


def spread(values: Sequence[float]) -> float:
    """(max - min) / median: how far repeated measurements of the same thing lie apart."""
    return (max(values) - min(values)) / float(np.median(values))


def _relative_error(slope: float, interval: tuple[float, float]) -> float:
    return (interval[1] - interval[0]) / 2 / slope if slope > 0 else math.inf


def _slope_with_interval(lengths: Array, times: Array) -> tuple[float, tuple[float, float]]:
    slope = _slope(lengths, times)
    low, high = (float(value) for value in np.quantile(_resampled_slopes(lengths, times), (0.025, 0.975)))
    return slope, (min(low, slope), max(high, slope))


def _slope(lengths: Array, walls: Array) -> float:
    first, second = np.triu_indices(len(lengths), k=1)
    return float(_pair_median((lengths[second] - lengths[first])[None], (walls[second] - walls[first])[None])[0])


def _resampled_slopes(lengths: Array, walls: Array) -> Array:
    """Slopes of bootstrap samples. The generator is fixed: the same windows give the same interval."""
    generator = np.random.default_rng(0)
    chosen = generator.integers(0, len(lengths), (RESAMPLES, len(lengths)))
    first, second = np.triu_indices(len(lengths), k=1)
    runs = lengths[chosen][:, second] - lengths[chosen][:, first]
    rises = walls[chosen][:, second] - walls[chosen][:, first]
    slopes = _pair_median(runs, rises)
    return slopes[np.isfinite(slopes)]


def _pair_median(runs: Array, rises: Array) -> Array:
    """Median of `rises / runs` along the last axis, weighted by the length of the run; NaN where all runs are zero."""
    weights = np.abs(runs)
    slopes = np.divide(rises, runs, out=np.zeros_like(rises), where=runs != 0)
    order = np.argsort(slopes, axis=-1)
    sums = np.cumsum(np.take_along_axis(weights, order, -1), axis=-1)
    middle = np.argmax(sums >= sums[:, -1:] / 2, axis=-1)
    chosen = np.take_along_axis(np.take_along_axis(slopes, order, -1), middle[:, None], -1)[:, 0]
    return np.where(sums[:, -1] > 0, chosen, np.nan)


def _shortest_with_error(values: Array) -> tuple[float | None, float]:
    """The shortest, and how far the shorter half lies apart, as half a 95 % interval."""
    if not len(values):
        return None, math.inf
    lower = np.sort(values)[: -(-len(values) // 2)]
    deviation = float(np.median(np.abs(lower - np.median(lower)))) * 1.4826
    return float(lower[0]), 1.96 * 1.2533 * deviation / math.sqrt(len(lower))
