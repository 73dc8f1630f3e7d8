"""Rounds of windows: fresh content, then a window of each side, under equal conditions.

Content is written once for a round, and then each side gets its window after a flush: the contestant first, its silent
twin next, and who is trusted last, while nobody else runs. The reference's outputs of that very round are what the
others' sampled outputs are compared with, by whoever passes `inspect`.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import median

from kerneldojo.devices.cuda import charges
from kerneldojo.devices.cuda import page as pages
from kerneldojo.devices.cuda.fits import Fit
from kerneldojo.devices.cuda.inputs import InputSets, Layout
from kerneldojo.devices.cuda.sampling import Plan, draw_plan
from kerneldojo.devices.cuda.series import Series, charge, fits
from kerneldojo.devices.cuda.window import Side, Stopwatch, Timed

ASK_EVERY = 4
"""Rounds from one look at the interval and the clocks to the next: some 30 ms, so looking costs little."""
ENOUGH_WINDOWS = 8
"""Windows of a side that is trusted after which it may be known well enough to play less often."""
SELDOM = 3
"""It then plays in one round of so many, drawn by chance: what is sampled in the others is not compared with anything,
so nobody may know which they are. Only in rounds of one call it always plays: they take hardly any time, and what one
call alone costs is told by its windows next to others'."""
PATIENCE = 3.0
"""Times `Effort.seconds` after which a series ends though there are too few calls, or a figure says little, and after
which a side's calls are taken for batched, if they still look so."""
SLOW_FLUSH = 3.0
"""A flush that takes this many times longer than usual betrays somebody else on the device."""
USUAL_PRIME = (0.6, 1.6)
"""So does bringing a context in, if it takes less or more than these shares of the usual time."""

Inspect = Callable[[int, dict[str, Timed]], None]
"""Called after each round with its length and the windows by side, while all outputs are still there."""

Still = Callable[[], contextlib.AbstractContextManager[None]]
"""In it processes of sides that are not trusted do not run. Entered before a trusted side's window is prepared, left
when the round has been looked at: so nobody works beside the reference to slow it down, and what somebody wrote to the
inputs is still there to be seen."""


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
    """Stop after this long, once there are `min_windows`, `min_calls` and a figure that says something; after
    `PATIENCE` times it without the last two."""
    window_us: float = 3000.0
    """How long the quickest side's longest window should be: see `lengths.longest_window`."""
    warm_up_windows: int = 1
    """Short ones, before one of a few calls in which sides time their own: each costs as much as two that count. Calls
    that are known to be quick need none."""
    is_slow: bool = False
    """Whether a side has said before that its calls take long: then the first round that bears it out is the last."""
    slowness: float = 1.0
    """Of the cores; see `charges.charge`."""
    is_brisk: bool = False
    """Whether what can be done while the device writes new content is done then: see `Rounds.play`."""


class Rounds:
    """Rounds of one series: who plays in each, in which order, what it says, and whether that is enough."""

    def __init__(
        self,
        stopwatch: Stopwatch,
        sides: Sequence[Side],
        inputs: InputSets,
        series: dict[str, Series],
        inspect: Inspect | None,
        still: Still,
        chance: random.SystemRandom,
        effort: Effort,
    ) -> None:
        self.count = 0
        self.num_calls = 0
        self.is_warmed = False
        """Whether each window has a call before it that nobody times."""
        self._effort = effort
        self._seldom = set[str]()
        """Sides that are known well enough."""
        self.have_retired = False
        """Whether who is not trusted has no more windows."""
        self._releasing: list[Side] = []
        """Sides that were told to free their outputs, and may still be at it."""
        self._stopwatch, self._sides, self._inputs = stopwatch, sides, inputs
        self._series, self._inspect, self._still, self._chance = series, inspect, still, chance
        self._found: dict[str, Fit] = {}
        self._found_at = -1
        """The number of rounds that `_found` is of."""
        self._looked_batched = False
        """Whether it has, when it was otherwise over."""
        self._flushes: list[float] = []
        self._primes: dict[str, list[float]] = {side.name: [] for side in sides}

    def play(self, length: int, *, counted: bool, with_events: bool = False) -> dict[str, Timed]:
        """One round: fresh inputs, then a window of each side that has not failed.

        What is waited for while no clock runs is done before there is anything to compute on: who is not trusted frees
        its outputs, and who is timed first has left its nap and said so. New content takes the device half a
        millisecond or more. While it writes, the judge draws what it will sample; each further side, and who is trusted
        is the last, wakes while the judge looks at what the one before said.
        """
        playing = [side for side in self._sides if self._is_live(side) and (not counted or self._plays(side, length))]
        order = self._order(playing)
        self.rest(is_trusted=any(side.is_trusted for side in order[:1]))
        for side in order[:1]:
            self._awaken(side)
        self._inputs.refresh(length)
        self.rest()
        # Outputs of all sides are sampled at the same places, where they lie alike.
        plans: dict[tuple[Layout, ...], Plan] = {}
        # One stamp, for the same reason: all sides of a round must see the same content.
        stamp = self._inputs.draw_stamp(length)
        near = stamp.places()
        if self._effort.is_brisk:
            plans = {layouts: draw_plan(length, layouts, near) for layouts in {side.layouts: None for side in order}}
        timed: dict[str, Timed] = {}
        with contextlib.ExitStack() as stack:
            for side, following in zip_longest(order, order[1:]):  # Nobody may be left to play.
                plan = plans.get(side.layouts) or plans.setdefault(side.layouts, draw_plan(length, side.layouts, near))
                if side.is_trusted and counted:
                    stack.enter_context(self._still())
                if self._inputs.may_change and side is not order[0]:
                    self._inputs.restore()
                with _told_of(side):
                    result = self._stopwatch.time(
                        side,
                        length,
                        plan,
                        stamp=stamp,
                        with_events=with_events,
                        is_warmed=self.is_warmed,
                        is_woken=self._effort.is_brisk or side is order[0],
                        following=following if self._effort.is_brisk else None,
                    )
                timed[side.name] = result
                self._note(side.name, result, counted=counted)
            if self._inspect is not None and timed:
                self._inspect(length, timed)
        for side in playing:
            if self._series[side.name].failed == pages.OK:
                self._stopwatch.order_release(side)
                self._releasing.append(side)
                if not self._effort.is_brisk:
                    self.rest()
        if counted:
            self.count += 1
            self.num_calls += length
        return {name: result for name, result in timed.items() if result.state == pages.OK}

    def rest(self, *, is_trusted: bool = True) -> None:
        """Wait until all sides, or only those that are not trusted, have freed the outputs of their last windows."""
        for side in reversed([side for side in self._releasing if is_trusted or not side.is_trusted]):
            with _told_of(side):
                self._stopwatch.await_release(side)
        self._releasing = [side for side in self._releasing if side.is_trusted and not is_trusted]

    def _awaken(self, side: Side) -> None:
        """Have a side leave its nap, and wait until it has."""
        with _told_of(side):
            self._stopwatch.wake(side)
            self._stopwatch.await_awake(side)

    def relax(self) -> None:
        """Find sides that need not play in every round: those that are trusted, and known or sharp.

        A reference is often slower than its candidate, so that its figure is sharp long before. Who plays alone plays
        always.
        """
        if self.have_retired:
            return
        for side in self._sides:
            if not side.is_trusted or len(self._series[side.name].windows) < ENOUGH_WINDOWS:
                continue
            found = self._fitted().get(side.name) if side.is_decisive else None
            if not side.is_decisive or (found is not None and found.relative_error <= self._effort.target_error):
                self._seldom.add(side.name)
            else:
                self._seldom.discard(side.name)

    def _is_live(self, side: Side) -> bool:
        """Whether it may have more windows."""
        return self._series[side.name].failed == pages.OK and (side.is_trusted or not self.have_retired)

    def _fitted(self) -> dict[str, Fit]:
        """The lines of the sides that matter and have not failed; asked for several times after a round."""
        if self._found_at != self.count:
            self._found_at = self.count
            self._found = fits(
                {
                    side.name: self._series[side.name]
                    for side in self._sides
                    if (side.is_decisive or side.is_trusted) and self._is_live(side)
                }
            )
        return self._found

    def _plays(self, side: Side, length: int) -> bool:
        if side.name in self._seldom:
            return length == 1 or self._chance.random() < 1 / SELDOM
        return self.count % side.every == 0

    def _order(self, sides: list[Side]) -> list[Side]:
        """Whom the judge does not trust and whose figure counts comes first: it has no time to compute on the inputs
        while others are timed. Who is trusted comes last, when all others can stand still."""
        mixed = self._chance.sample(sides, len(sides))
        return sorted(mixed, key=lambda side: (side.is_trusted, not side.is_decisive))

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
            series.windows.append(result.window(self.count, is_warmed=self.is_warmed, is_undisturbed=is_undisturbed))

    def is_over(self, seconds: float) -> bool:
        """Whether every decisive side's slope is known well enough, or the time is up; asked every few rounds.

        Where calls in a row seem not to have been computed one by one, more windows of one call are needed to say so,
        all that there may be: who has several looks at it until one is in its favour would have one by chance. And a
        few more windows make a figure of what would say little.
        """
        effort = self._effort
        is_late = seconds > effort.seconds
        if self.count % ASK_EVERY and not is_late:
            return False
        if self.num_calls < effort.min_calls and seconds < PATIENCE * effort.seconds:
            return False
        live = {side.name: side for side in self._sides if self._is_live(side)}
        decisive = [name for name, side in live.items() if side.is_decisive]
        found = self._fitted()
        is_sharp = all(name in found and found[name].relative_error <= effort.target_error for name in decisive)
        is_batched = any(
            charge(self._series, found, name, other, effort.slowness).batched
            for other in found
            for name in decisive
            if name in found and live[other].is_trusted and not live[name].is_trusted
        )
        is_blurred = any(
            name not in found or charges.is_blurred(found[name].per_call_us, found[name].interval_us)
            for name in decisive
        )
        if not (is_sharp or is_late):
            return False
        self._looked_batched |= is_batched
        return seconds >= PATIENCE * effort.seconds or not (self._looked_batched or is_blurred)


@contextlib.contextmanager
def _told_of(side: Side) -> Generator[None]:
    """Whoever is late is told to be this side."""
    try:
        yield
    except pages.Late as late:
        late.side = side.name
        raise
