"""Trials: windows of secret lengths, the sides measured in turns under equal conditions, until the figure is sharp."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from kerneldojo.devices.cuda import page as pages
from kerneldojo.devices.cuda.clock import Device, Watch
from kerneldojo.devices.cuda.fits import Fit
from kerneldojo.devices.cuda.inputs import InputSets, set_bytes
from kerneldojo.devices.cuda.lengths import longest_window, plan_lengths
from kerneldojo.devices.cuda.series import Series, fits
from kerneldojo.devices.cuda.window import Side, Stopwatch
from kerneldojo.devices.cuda.window_rounds import ASK_EVERY, Effort, Inspect, Rounds, Still

WARMED_US = 1000.0
"""Calls shorter than this are warmed up before each window; what a cold launch adds to longer ones is lost in them."""
SLOW_US = 20_000.0
"""Calls longer than this are warm after two rounds, and tell their time in them. What disturbs a window is nothing
beside them, so few windows say as much as many: everybody else waits while they are timed."""
FEW_WINDOWS = 8
"""They have half as many as others at least, but no fewer than this, which is all that a `quick` verdict asks for."""
LOOK_EVERY = 6
"""Rounds from one look at the cores to the next: some 50 ms. A look takes two, and the first was before the series."""
FEW_SETS = 4
"""Where memory holds fewer input sets than this, all are timed."""


@dataclass
class Trials:
    """What came out."""

    series: dict[str, Series]
    watch: Watch
    num_rounds: int
    seconds: float

    @cached_property
    def fitted(self) -> dict[str, Fit]:
        """See `fits`."""
        return fits(self.series, is_final=True)


def run(
    stopwatch: Stopwatch,
    sides: Sequence[Side],
    inputs: InputSets,
    device: Device,
    effort: Effort,
    *,
    inspect: Inspect | None = None,
    still: Still = contextlib.nullcontext,
    between: Callable[[], None] | None = None,
) -> Trials:
    """Measure `sides`, whose call loops must be serving; ends their series.

    Args:
        stopwatch, sides, inputs, device, effort: see there.
        inspect: looks at each round.
        still: see there; without it nobody is stopped.
        between: called every `LOOK_EVERY` rounds, while no side is at work.

    Raises:
        page.Late: a side took too long; and what a side's `check` raises.
    """
    start = time.monotonic()
    series = {side.name: Series(is_trusted=side.is_trusted) for side in sides}
    watch = Watch()
    chance = random.SystemRandom()
    rounds = Rounds(stopwatch, sides, inputs, series, inspect, still, chance, effort)
    has_spare = inputs.count >= FEW_SETS  # The last set is for calls that nobody times.
    longest = min(inputs.count - has_spare, pages.MAX_CALLS, *(room(side) for side in sides))
    try:
        per_call = _warm_up(rounds, longest, effort)
        if per_call:
            rounds.is_warmed = has_spare and max(per_call) < WARMED_US
            longest = longest_window(per_call, longest, effort.window_us)
        is_slow = max(per_call, default=0.0) > SLOW_US
        half = min(effort.min_windows, max(FEW_WINDOWS, effort.min_windows // 2))
        min_windows = half if is_slow else effort.min_windows
        lengths: list[int] = []
        while rounds.count < effort.max_windows and not all(item.failed for item in series.values()):
            if rounds.count % ASK_EVERY == 0:
                rounds.relax()
            if not lengths:
                draws = [chance.random() for _ in range(24)]
                lengths = plan_lengths(longest, 12, draws)
            if between is not None and rounds.count % LOOK_EVERY == LOOK_EVERY - 1:
                between()
            rounds.play(lengths.pop(), counted=True)
            if rounds.count % ASK_EVERY == 0:
                watch.readings.append(device.read())
            if rounds.count >= min_windows and rounds.is_over(time.monotonic() - start):
                break
        rounds.rest()
    finally:
        for side in sides:
            stopwatch.end(side)
    return Trials(series, watch, rounds.count, time.monotonic() - start)


def _warm_up(rounds: Rounds, longest: int, effort: Effort) -> list[float]:
    """Rounds that do not count; what a call of each side took in the last of them, in microseconds.

    The last is of more calls than the others, but for calls that take long; and in it sides time their own calls. What
    is told of that is one number, and it is a claim.
    """
    per_call: list[float] = []
    few, is_slow = min(2, longest), False
    for number in range(effort.warm_up_windows + 1):
        is_last = number == effort.warm_up_windows
        seen = rounds.play(min(8, longest) if is_last and not is_slow else few, counted=False, with_events=is_last)
        per_call = [timed.done_us / timed.length for timed in seen.values()]
        was_slow, is_slow = is_slow, max(per_call, default=0.0) > SLOW_US
        if was_slow and is_slow:  # What is slow the first time alone is cold.
            break
    return per_call


def room(side: Side) -> int:
    """How many calls' outputs a side's heap has room for, two at least: a slope needs them."""
    return max(2, side.arena.outputs_bytes // max(1, set_bytes(side.layouts)))
