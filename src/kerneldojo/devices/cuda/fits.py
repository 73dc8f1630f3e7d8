"""From windows to a time per call: the line through what the judge's clock read.

A window is `length` calls in a row, timed from outside by the judge. Its wall time is a fixed overhead (signalling,
switching contexts, the judge's own sampling of the outputs) plus `length` times the cost of a call, so the cost of a
call is the slope over windows of different, secret lengths. Times here are in microseconds.

Most of the noise is in that overhead: after the last call the device switches to the judge's context, which takes 240
or 310 us by turns. A side also says when its calls begin (what came with the signal is written first) and when it was
done, which is before the switch. That is three times as sharp, but a claim. So its slope stands only where the judge's
own clock bears it out: work that goes on after "done" is in the judge's slope, and then that is what counts. What a
longer window adds to the reading itself (samples of many outputs take longer to read than those of one) is known from
the reference runner, whose "done" is trusted. What a side did before its calls began is paid for (`head_starts`).

The rest of the noise is the host's, and it only ever makes a window longer: a launching core that hiccups costs 20 to
300 us, in most windows of a busy host. So the line is that of the quick ones: it leads from the mean of the quick half
of the short windows to that of the quick half of the long ones. (Of kernels' windows on a busy H200 it spread half as
much as the median of all pairs' slopes did, and it is as sharp on a quiet one.) Where bringing the context in took
longer than usual, so does launching, and that is known before a window begins and before anybody else knows its length:
such windows are left out. No host makes a fifth of all windows take twice as long, though: whoever sleeps now and then
(in the call before a window, too, so that it is left out) is charged the mean of all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from kerneldojo.devices.cuda.quantiles import median, quantile

Array = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

MOST_DOUBT = 0.05
"""By how much the judge's own slope may be beyond another that it bears out; half its interval over itself may be twice
that. So what somebody hides behind "done" is a few hundredths at most."""
BIAS = 0.01
"""How far below the judge's interval the other may lie: reading samples from one output, half of it still in the cache,
is a little quicker than from many."""
SLOW_HOST = 1.15
"""Windows are left out whose context took so many times longer to bring in than in the quickest quarter."""
QUICK = 0.5
"""The share of windows that count as quick."""
FEW_SHORT = 3
"""With fewer windows of one call than this, all up to `SHORT` of the longest one's calls count as short."""
SHORT = 0.25
LONG = 0.5
"""Windows from this share of the longest one's calls on are long."""
STEPS = 12
"""Of the iteration for a line where short windows differ in length; each leaves less than half of the error."""
LATE = 2.0
"""A window that took so many times longer than the line says is late."""
MOST_LATE = 0.2
"""If more windows than this are late, that is the side's own doing, and is paid for."""
RESAMPLES = 200
"""Bootstrap samples behind every interval."""


@dataclass(frozen=True)
class Window:
    """One timed window."""

    length: int
    """Calls in it, at least 1."""
    wall_us: float
    """From when the side said that its calls begin until the judge had read its sample of the outputs."""
    undisturbed: bool = True
    """False if something else was seen to use the device; such windows are left out."""
    done_us: float | None = None
    """From when the side said that its calls begin until it said that it was done: a claim."""
    prime_us: float | None = None
    """How long bringing its context in took, just before: longer than usual where the host is slow."""
    turn: int | None = None
    """The round it was in; None if that is not known."""
    is_warmed: bool = False
    """Whether a call that nobody times went with bringing the context in."""
    taken_us: float = 0.0
    """From the signal until the side said that its calls begin."""
    prepare_us: float = 0.0
    """How long the flushing of the caches took before; 0 where that is not known."""

    @property
    def from_signal_us(self) -> float:
        """The judge's clock alone."""
        return self.taken_us + self.wall_us


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
    mean_us: float = math.inf
    """Wall time of all undisturbed windows over their calls: more than a call costs, for windows cost something too."""
    reading_us: float = 0.0
    """By how much the judge's slope is beyond that of "done"; never negative."""

    @property
    def around_us(self) -> float:
        """What a window costs around its calls, by its windows of one call where there are any; never negative."""
        around = self.overhead_us if self.single_us is None else self.single_us - self.per_call_us
        return max(around, 0.0)

    @property
    def relative_error(self) -> float:
        """Half the interval over the slope."""
        return _relative_error(self.per_call_us, self.interval_us)


def fit(windows: Sequence[Window], *, is_trusted: bool = False, reading_us: float = 0.0) -> Fit:
    """The line from the quick half of the short windows to the quick half of the long ones.

    Whatever makes up to half of the windows longer does not move it far. Its slope is that of `done_us` where that of
    `wall_us` bears it out; and the mean of all windows if many are late.

    Args:
        windows: of one side.
        is_trusted: whether `done_us` is no claim but a fact.
        reading_us: what a call more adds to the judge's reading: `Fit.reading_us` of a side that is trusted.

    Raises:
        ValueError: fewer than two different lengths among the undisturbed windows.
    """
    undisturbed = [window for window in windows if window.undisturbed]
    kept = _on_quick_host(undisturbed)
    lengths = np.array([window.length for window in kept], dtype=np.float64)
    walls = np.array([window.wall_us for window in kept], dtype=np.float64)
    if len(set(lengths.tolist())) < 2:
        raise ValueError("a slope needs windows of at least two lengths")
    line = _Line(lengths)
    wall_slope, wall_interval = slope, interval = line.slope_with_interval(walls)
    told = [window.done_us for window in kept if window.done_us is not None]
    is_told = False
    if len(told) == len(kept):
        told_slope, told_interval = line.slope_with_interval(np.array(told, dtype=np.float64))
        is_sharp = _relative_error(wall_slope, wall_interval) <= 2 * MOST_DOUBT
        is_near = wall_slope <= told_slope * (1 + MOST_DOUBT) + reading_us
        is_borne_out = is_sharp and is_near and wall_interval[0] <= told_slope * (1 + BIAS) + reading_us
        if is_trusted or is_borne_out:
            slope, interval, is_told = told_slope, told_interval, True
    from_signal = np.array([window.from_signal_us for window in kept], dtype=np.float64)
    overhead = median(from_signal - wall_slope * lengths)
    mean = _mean_if_often_late(undisturbed, wall_slope, overhead)
    if mean is not None and mean > slope:
        slope, interval, is_told = mean, (interval[0], max(interval[1], mean)), False
    single, error = _shortest_with_error(from_signal[lengths == 1])
    return Fit(
        per_call_us=slope,
        interval_us=interval,
        overhead_us=overhead,
        single_us=single,
        single_error_us=error,
        num_windows=len(kept),
        num_calls=int(lengths.sum()),
        is_told=is_told,
        mean_us=sum(window.from_signal_us for window in undisturbed) / sum(window.length for window in undisturbed),
        reading_us=max(0.0, wall_slope - slope) if is_told else 0.0,
    )


def _relative_error(slope: float, interval: tuple[float, float]) -> float:
    return (interval[1] - interval[0]) / 2 / slope if slope > 0 else math.inf


def _on_quick_host(windows: list[Window]) -> list[Window]:
    """Those that began while the host was quick; at least half of them, and more than one length."""
    primes = [window.prime_us for window in windows if window.prime_us is not None]
    if len(primes) < len(windows) or not primes:
        return windows
    ordered = np.sort(primes)
    limit = max(SLOW_HOST * quantile(ordered, 0.25), quantile(ordered, 0.5))
    quick = [window for window, prime in zip(windows, primes, strict=True) if prime <= limit]
    return quick if len({window.length for window in quick}) >= 2 else windows


def _mean_if_often_late(windows: list[Window], per_call_us: float, overhead_us: float) -> float | None:
    """What a call costs in the mean of all windows, where many of them took much longer than the line says."""
    lengths = np.array([window.length for window in windows], dtype=np.float64)
    walls = np.array([window.from_signal_us for window in windows], dtype=np.float64)
    late = walls > LATE * np.maximum(overhead_us + per_call_us * lengths, 0.0)
    if float(late.mean()) <= MOST_LATE:
        return None
    return float((walls - overhead_us).sum() / lengths.sum())


class _Line:
    """Lines through the quick ones of windows of these lengths, and of bootstrap samples of them.

    A sample is drawn from short and long windows apart, as many of each as there are. The generator is fixed: the same
    windows give the same interval.
    """

    def __init__(self, lengths: Array) -> None:
        is_short = lengths == lengths.min()
        if is_short.sum() < FEW_SHORT:
            is_short |= lengths <= SHORT * lengths.max()
        self._middle = float(lengths[is_short].mean())
        short, long = np.flatnonzero(is_short), np.flatnonzero(~is_short & (lengths >= LONG * lengths.max()))
        of_short, of_long = _samples(len(short), len(long))
        self._short, self._long = short[of_short], long[of_long]
        self._short_runs, self._long_runs = lengths[self._short] - self._middle, lengths[self._long] - self._middle

    def slope_with_interval(self, times: Array) -> tuple[float, tuple[float, float]]:
        """The slope of `times`, one a window, and its 95 % interval."""
        short, long = times[self._short], times[self._long]
        slopes = np.zeros((len(short), 1))
        for _ in range(STEPS if self._short_runs.any() else 1):
            middles = _quick_means(short - slopes * self._short_runs)
            slopes = _quick_means((long - middles) / self._long_runs)
        slope, ordered = float(slopes[0, 0]), np.sort(slopes[1:, 0])
        low, high = quantile(ordered, 0.025), quantile(ordered, 0.975)
        few = math.sqrt(1 + 1 / short.shape[1] + 1 / long.shape[1])  # Samples of few windows vary less than windows do.
        return slope, (slope - few * max(0.0, slope - low), slope + few * max(0.0, high - slope))


@lru_cache(maxsize=1024)
def _samples(num_short: int, num_long: int) -> tuple[Places, Places]:
    """Of each kind first all, then bootstrap samples of them, by their numbers; a row each."""
    generator = np.random.default_rng(0)
    drawn = [(num, generator.integers(0, num, (RESAMPLES, num))) for num in (num_short, num_long)]
    short, long = (np.concatenate([np.arange(num)[None], chosen]) for num, chosen in drawn)
    return short, long


@lru_cache(maxsize=1024)
def _quick_weights(count: int) -> Array:
    """How much each of so many sorted values counts: the quick share alone, the last of them in part."""
    weights = np.clip(QUICK * count - np.arange(count), 0.0, 1.0)
    return weights / weights.sum()


def _quick_means(values: Array) -> Array:
    """The mean of the quick share of each row, as a column."""
    return (np.sort(values, axis=1) @ _quick_weights(values.shape[1]))[:, None]


def _shortest_with_error(values: Array) -> tuple[float | None, float]:
    """The shortest, and how far the shorter half lies apart, as half a 95 % interval."""
    if not len(values):
        return None, math.inf
    lower = np.sort(values)[: -(-len(values) // 2)]
    deviation = median(np.abs(lower - median(lower))) * 1.4826
    return float(lower[0]), 1.96 * 1.2533 * deviation / math.sqrt(len(lower))
