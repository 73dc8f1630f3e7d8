"""Trials: windows of secret lengths, the sides measured in turns under equal conditions, until the figure is sharp."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
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
HOPELESS = 4.0
"""Who takes so many times as long as its reference, and longer for `FEW_CALLS` than a series should take, has four
windows and no more. For a naive kernel whose calls take a second everybody else would wait for 25 of them, and nobody
needs its figure that sharp."""
FEW_CALLS = 8
"""Of who has four windows, with those before that do not count."""
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
    is_hopeless: bool = False
    """Whether who is not trusted had few windows, for being so much slower: see `HOPELESS`."""

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
    start = since = time.monotonic()
    series = {side.name: Series(is_trusted=side.is_trusted) for side in sides}
    watch = Watch()
    chance = random.SystemRandom()
    rounds = Rounds(stopwatch, sides, inputs, series, inspect, still, chance, effort)
    has_spare = inputs.count >= FEW_SETS  # The last set is for calls that nobody times.
    longest = min(inputs.count - has_spare, *(room(side) for side in sides))
    try:
        per_call = _warm_up(rounds, longest, effort)
        rounds.is_warmed = has_spare and bool(per_call) and max(per_call.values()) < WARMED_US
        if _is_hopeless(sides, per_call, effort):
            per_call = _play_few(rounds, sides, series, chance, effort)
            watch.readings.append(device.read())
            since = time.monotonic()  # Whoever plays on has as much time as ever.
        if per_call:
            longest = longest_window(list(per_call.values()), longest, effort.window_us)
        is_slow = max(per_call.values(), default=0.0) > SLOW_US
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
            if rounds.count >= min_windows and rounds.is_over(time.monotonic() - since):
                break
        rounds.rest()
    finally:
        for side in sides:
            stopwatch.end(side)
    return Trials(series, watch, rounds.count, time.monotonic() - start, is_hopeless=rounds.have_retired)


def _is_hopeless(sides: Sequence[Side], per_call: Mapping[str, float], effort: Effort) -> bool:
    """Whether all whose figures are asked for, and who are not trusted, take far longer than who is."""
    slow_us = max(SLOW_US, 1e6 * effort.seconds / FEW_CALLS)
    mine = [per_call[side.name] for side in sides if not side.is_trusted and side.is_decisive and side.name in per_call]
    theirs = [per_call[side.name] for side in sides if side.is_trusted and side.name in per_call]
    return bool(mine and theirs) and min(mine) > max(slow_us, HOPELESS * max(theirs))


def _play_few(
    rounds: Rounds,
    sides: Sequence[Side],
    series: Mapping[str, Series],
    chance: random.SystemRandom,
    effort: Effort,
) -> dict[str, float]:
    """Four windows of who seems hopeless, which then retires; but not if the judge's own clock has seen better.

    They have one call or two, in an order that is drawn, both lengths in every other round, too: who plays in these
    alone needs a line as well. What a call of each side that has more windows takes is returned, in microseconds: of a
    reference that then plays alone by what it says itself, for short windows are mostly what is around its calls.
    """
    (first, third), (second, fourth) = (chance.sample((1, 2), 2) for _ in range(2))
    for length in (first, second, third, fourth):
        rounds.play(length, counted=True)
    quickest = {side.name: _quickest_us(series[side.name]) for side in sides if series[side.name].windows}
    if not _is_hopeless(sides, quickest, effort):
        return quickest
    rounds.have_retired = True
    return {
        side.name: _quickest_us(series[side.name], is_told=True)
        for side in sides
        if side.name in quickest and side.is_trusted
    }


def _quickest_us(one: Series, *, is_told: bool = False) -> float:
    """What a call took in its quickest window, by the judge's clock or as the side told."""
    return min((window.wall_us if not is_told else window.done_us or 0.0) / window.length for window in one.windows)


def _warm_up(rounds: Rounds, longest: int, effort: Effort) -> dict[str, float]:
    """Rounds that do not count; what a call of each side took in the last of them, in microseconds.

    The last is of more calls than the others, but for calls that take long; and in it sides time their own calls. What
    is told of that is one number, and it is a claim.
    """
    per_call: dict[str, float] = {}
    few, is_slow = min(2, longest), effort.is_slow
    for number in range(effort.warm_up_windows + 1):
        is_last = number == effort.warm_up_windows
        has_events = is_last or is_slow
        seen = rounds.play(min(8, longest) if is_last and not is_slow else few, counted=False, with_events=has_events)
        per_call = {name: timed.done_us / timed.length for name, timed in seen.items()}
        was_slow, is_slow = is_slow, max(per_call.values(), default=0.0) > SLOW_US
        if was_slow and is_slow:  # What is slow the first time alone is cold.
            break
    return per_call


def room(side: Side) -> int:
    """How many calls' outputs a side's heap and page have room for, two at least: a slope needs them."""
    num_fitting = side.arena.outputs_bytes // max(1, set_bytes(side.layouts))
    return max(2, min(num_fitting, pages.most_calls(len(side.layouts))))
