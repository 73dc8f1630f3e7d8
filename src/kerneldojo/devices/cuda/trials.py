"""Trials: windows of secret lengths, the sides measured in turns under equal conditions, until the figure is sharp.

All sides meet the same inputs: content is written once for a round, and then each side gets its window after a flush:
the contestant first, the others in random order. The reference's outputs of that very round are what the others'
sampled outputs are compared with, by whoever passes `inspect`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median

from kerneldojo.devices.cuda import charges
from kerneldojo.devices.cuda import page as pages
from kerneldojo.devices.cuda.charges import Charge
from kerneldojo.devices.cuda.clock import Device, Watch
from kerneldojo.devices.cuda.fits import Fit, Window, fit
from kerneldojo.devices.cuda.inputs import InputSets, Layout, set_bytes
from kerneldojo.devices.cuda.lengths import longest_window, plan_lengths
from kerneldojo.devices.cuda.window import Plan, Side, Stopwatch, Timed, draw_plan

ASK_EVERY = 4
"""Rounds from one look at the interval, the clocks and the cores to the next: some 20 ms, so looking costs little."""
ENOUGH_WINDOWS = 8
"""Windows of a side that is trusted after which it may be known well enough to play less often."""
SELDOM = 3
"""It then plays in one round of so many, drawn by chance: what is sampled in the others is not compared with anything,
so nobody may know which they are."""
PATIENCE = 3.0
"""Times `Effort.seconds` after which a series ends though there are too few calls, and after which a side's calls are
taken for batched, if they still look so."""
SLOW_FLUSH = 3.0
"""A flush that takes this many times longer than usual betrays somebody else on the device."""
WARMED_US = 1000.0
"""Calls shorter than this are warmed up before each window; what a cold launch adds to longer ones is lost in them."""
FEW_SETS = 4
"""Where memory holds fewer input sets than this, all are timed."""
USUAL_PRIME = (0.6, 1.6)
"""So does bringing a context in, if it takes less or more than these shares of the usual time."""


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    min_windows: int = 12
    max_windows: int = 60
    min_calls: int = 100
    """Calls of each side, all windows together."""
    target_error: float = 0.01
    """Half the 95 % interval over the slope at which a side is sharp enough."""
    seconds: float = 1.0
    """Stop after this long, once there are `min_windows` and `min_calls`; after `PATIENCE` times it without these."""
    window_us: float = 3000.0
    """How long the quickest side's longest window should be: see `lengths.longest_window`."""
    warm_up_windows: int = 3
    event_windows: int = 1
    """Windows at the end in which sides time their own calls; they do not enter the slope."""
    is_brisk: bool = True
    """Whether what can be done while the device writes new content is done then: see `_Round.play`."""


@dataclass
class Series:
    """All windows of one side."""

    windows: list[Window] = field(default_factory=list[Window])
    spans_us: list[float] = field(default_factory=list[float])
    """The side's own times of single calls; claims."""
    failed: int = pages.OK
    """How a window failed, if one did: no more were run for this side."""
    is_trusted: bool = False
    """As `Side.is_trusted`: then what it says itself is a fact."""

    @property
    def num_disturbed(self) -> int:
        """Windows left out because something else used the device. Many of them are evidence in themselves."""
        return sum(not window.undisturbed for window in self.windows)


def fits(series: Mapping[str, Series]) -> dict[str, Fit]:
    """The line through each side's windows, without the sides that have too few for one."""
    found: dict[str, Fit] = {}
    reading_us = 0.0
    for name, one in sorted(series.items(), key=lambda item: not item[1].is_trusted):  # These tell about the reading.
        try:
            found[name] = fit(one.windows, is_trusted=one.is_trusted, reading_us=reading_us)
        except ValueError:
            continue
        if one.is_trusted:
            reading_us = found[name].reading_us
    return found


def charge(series: Mapping[str, Series], found: Mapping[str, Fit], name: str, trusted: str) -> Charge:
    """What a call of one side costs, by its windows and those of one that is trusted; `found` as from `fits`."""
    around = found[trusted]
    paired = charges.alone(series[name].windows, series[trusted].windows, around.per_call_us)
    return charges.charge(found[name], around.around_us, around.single_error_us, paired)


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
        return fits(self.series)


Inspect = Callable[[int, dict[str, Timed]], None]
"""Called after each round with its length and the windows by side, while all outputs are still there."""


def run(
    stopwatch: Stopwatch,
    sides: Sequence[Side],
    inputs: InputSets,
    device: Device,
    effort: Effort,
    *,
    inspect: Inspect | None = None,
    between: Callable[[], None] | None = None,
) -> Trials:
    """Measure `sides`, whose call loops must be serving; ends their series.

    Args:
        stopwatch, sides, inputs, device, effort: see there.
        inspect: looks at each round.
        between: called every few rounds, while no side is at work.

    Raises:
        page.Late: a side took too long; and what a side's `check` raises.
    """
    start = time.monotonic()
    series = {side.name: Series(is_trusted=side.is_trusted) for side in sides}
    watch = Watch()
    chance = random.SystemRandom()
    round_ = _Round(stopwatch, sides, inputs, series, inspect, chance, is_brisk=effort.is_brisk)
    has_spare = inputs.count >= FEW_SETS  # The last set is for calls that nobody times.
    longest = min(inputs.count - has_spare, pages.MAX_CALLS, *(_room(side) for side in sides))
    try:
        for _ in range(effort.warm_up_windows):
            round_.play(min(2, longest), counted=False)
        probe = round_.play(longest if longest < 8 else 8, counted=False)
        if probe:
            per_call = [timed.done_us / timed.length for timed in probe.values()]
            round_.is_warmed = has_spare and max(per_call) < WARMED_US
            longest = longest_window(per_call, longest, effort.window_us)
        lengths: list[int] = []
        while round_.count < effort.max_windows and not all(item.failed for item in series.values()):
            if round_.count % ASK_EVERY == 0:
                round_.relax(effort.target_error)
            if not lengths:
                draws = [chance.random() for _ in range(24)]
                lengths = plan_lengths(longest, 12, draws)
            if between is not None and round_.count % ASK_EVERY == 0:
                between()
            round_.play(lengths.pop(), counted=True)
            if round_.count % ASK_EVERY == 0:
                watch.readings.append(device.read())
            if round_.count >= effort.min_windows and round_.is_over(effort, time.monotonic() - start):
                break
        for _ in range(effort.event_windows):
            round_.play(longest, counted=False, with_events=True)
        round_.rest()
    finally:
        for side in sides:
            stopwatch.end(side)
    return Trials(series, watch, round_.count, time.monotonic() - start)


def _room(side: Side) -> int:
    """How many calls' outputs fit into half of a side's heap, two at least: a slope needs them."""
    return max(2, side.arena.heap.size // 2 // max(1, set_bytes(side.layouts)))


class _Round:
    def __init__(
        self,
        stopwatch: Stopwatch,
        sides: Sequence[Side],
        inputs: InputSets,
        series: dict[str, Series],
        inspect: Inspect | None,
        chance: random.SystemRandom,
        *,
        is_brisk: bool = True,
    ) -> None:
        self.count = 0
        self.num_calls = 0
        self.is_warmed = False
        """Whether each window has a call before it that nobody times."""
        self._is_brisk = is_brisk
        self._seldom = set[str]()
        """Sides that are known well enough."""
        self._releasing: list[Side] = []
        """Sides that were told to free their outputs, and may still be at it."""
        self._stopwatch, self._sides, self._inputs = stopwatch, sides, inputs
        self._series, self._inspect, self._chance = series, inspect, chance
        self._found: dict[str, Fit] = {}
        self._found_at = -1
        """The number of rounds that `_found` is of."""
        self._flushes: list[float] = []
        self._primes: dict[str, list[float]] = {side.name: [] for side in sides}

    def play(self, length: int, *, counted: bool, with_events: bool = False) -> dict[str, Timed]:
        """One round: fresh inputs, then a window of each side that has not failed.

        New content takes the device half a millisecond or more, a side as long as a tenth of one to leave its nap. So
        while the device writes, sides free their outputs, the first one wakes, and the judge draws what it will sample;
        each further one wakes while the judge looks at what the last one said. None of that is within anybody's clock,
        and each side is awake before the caches are flushed and its inputs change a last time.
        """
        playing = [
            side
            for side in self._sides
            if self._series[side.name].failed == pages.OK and (not counted or self._plays(side))
        ]
        if with_events and self._is_brisk:  # The other sides' own times are of no use to anybody.
            playing = [side for side in playing if side.is_decisive or side.is_trusted]
        self._inputs.refresh(length)
        self.rest()
        order = self._order(playing)
        # Outputs of all sides are sampled at the same places, where they lie alike.
        plans: dict[tuple[Layout, ...], Plan] = {}
        if self._is_brisk:
            for side in order[:1]:
                self._stopwatch.wake(side)
            plans = {layouts: draw_plan(length, layouts) for layouts in {side.layouts: None for side in order}}
        # Stamped once a round, for the same reason: all sides of a round must see the same content.
        stamp: Callable[[], None] | None = self._inputs.draw_stamp(length)
        timed: dict[str, Timed] = {}
        for side, following in zip(order, [*order[1:], None], strict=True):
            plan = plans.get(side.layouts) or plans.setdefault(side.layouts, draw_plan(length, side.layouts))
            try:
                result = self._stopwatch.time(
                    side,
                    length,
                    plan,
                    stamp=stamp,
                    with_events=with_events,
                    is_warmed=self.is_warmed,
                    is_woken=self._is_brisk,
                    following=following if self._is_brisk else None,
                )
                stamp = None
            except pages.Late as late:
                late.side = side.name
                raise
            timed[side.name] = result
            self._note(side.name, result, counted=counted)
        if self._inspect is not None and timed:
            self._inspect(length, timed)
        for side in playing:
            if self._series[side.name].failed == pages.OK:
                self._stopwatch.order_release(side)
                self._releasing.append(side)
                if not self._is_brisk:
                    self.rest()
        if counted:
            self.count += 1
            self.num_calls += length
        return {name: result for name, result in timed.items() if result.state == pages.OK}

    def rest(self) -> None:
        """Wait until all sides have freed the outputs of their last windows."""
        while self._releasing:
            side = self._releasing.pop()
            try:
                self._stopwatch.await_release(side)
            except pages.Late as late:
                late.side = side.name
                raise

    def relax(self, target_error: float) -> None:
        """Find sides that need not play in every round: those that are trusted and sharp, where others are not yet.

        A reference is often slower than its candidate, so that its figure is sharp long before.
        """
        for side in self._sides:
            windows = self._series[side.name].windows
            if side.is_trusted and len(windows) >= ENOUGH_WINDOWS:
                found = self._fitted().get(side.name)
                if found is not None and found.relative_error <= target_error:
                    self._seldom.add(side.name)
                else:
                    self._seldom.discard(side.name)

    def _fitted(self) -> dict[str, Fit]:
        """The lines of the sides that matter and have not failed; asked for several times after a round."""
        if self._found_at != self.count:
            self._found_at = self.count
            self._found = fits(
                {
                    side.name: self._series[side.name]
                    for side in self._sides
                    if (side.is_decisive or side.is_trusted) and self._series[side.name].failed == pages.OK
                }
            )
        return self._found

    def _plays(self, side: Side) -> bool:
        if side.name in self._seldom:
            return self._chance.random() < 1 / SELDOM
        return self.count % side.every == 0

    def _order(self, sides: list[Side]) -> list[Side]:
        """Whom the judge does not trust and whose figure counts comes first: it has no time to compute on the inputs
        while others are timed. The rest by chance."""
        mixed = self._chance.sample(sides, len(sides))
        return sorted(mixed, key=lambda side: side.is_trusted or not side.is_decisive)

    def _note(self, name: str, result: Timed, *, counted: bool) -> None:
        series = self._series[name]
        if result.state != pages.OK:
            series.failed = result.state
            return
        series.spans_us.extend(result.spans_us)
        self._flushes.append(result.prepare_us)
        primes = self._primes[name]
        if counted:
            primes.append(result.prime_us)  # Of windows like it: those before may not have been warmed.
            low, high = (share * median(primes) for share in USUAL_PRIME)
            alone = result.prepare_us < SLOW_FLUSH * median(self._flushes)
            is_undisturbed = alone and low <= result.prime_us <= high
            series.windows.append(
                Window(
                    result.length,
                    result.wall_us,
                    is_undisturbed,
                    result.done_us,
                    result.prime_us,
                    self.count,
                    self.is_warmed,
                )
            )

    def is_over(self, effort: Effort, seconds: float) -> bool:
        """Whether every decisive side's slope is known well enough, or the time is up; asked every few rounds.

        Where calls in a row seem not to have been computed one by one, more windows of one call are needed to say so.
        """
        is_late = seconds > effort.seconds
        if self.count % ASK_EVERY and not is_late:
            return False
        if self.num_calls < effort.min_calls and seconds < PATIENCE * effort.seconds:
            return False
        live = {side.name: side for side in self._sides if self._series[side.name].failed == pages.OK}
        decisive = [name for name, side in live.items() if side.is_decisive]
        found = self._fitted()
        is_sharp = all(name in found and found[name].relative_error <= effort.target_error for name in decisive)
        is_batched = any(
            charge(self._series, found, name, other).batched
            for other in found
            for name in decisive
            if name in found and live[other].is_trusted and not live[name].is_trusted
        )
        return (is_sharp or is_late) and not (is_batched and seconds < PATIENCE * effort.seconds)
