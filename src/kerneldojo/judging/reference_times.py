"""Reference times, measured once and checked again: the same problem's reference need not be timed sharply each time.

The trade. A speedup is honest if both times were taken under the same conditions. Taking the reference's from an
earlier verdict gives up the same minute, and gains steadiness (all candidates of a problem are held against one figure)
and time (windows go on only until the candidate's figure is sharp). What keeps it honest: the reference still takes
part, since its outputs are what timed outputs are compared with, so that a rough time of it comes for nothing.
If that is lower than the kept figure by more than both intervals, the kept one is thrown away and this verdict stands
on its own measurement. A kept figure is also worn out, by age and by number of uses: then it is measured anew.

If it is higher, the device has drifted, or the candidate has slowed its reference: work that it left on the device goes
on while its processes stand still (seen on an H200: a copy with a kernel behind it made a reference of 85 us take 94).
So a higher one is credited only once it is confirmed: the reference is timed again when the candidate's processes are
dead (`confirmation`), and so it is where nothing was known. What is kept bounds for an hour, be it worn out or not.

Intervals say little here. Those of few windows are wide at times (84.8 to 89.6 us, on an H200, of what takes 84.9), and
all that lies in one is not the reference's time. So a figure counts as another's equal only within `NOISE` of that, and
what is kept never becomes a higher one unasked: else many candidates, each a little slower, would carry it upwards.

What launches bind takes longer on cores that are slow, and that is no drift of the device: the candidate may have had
quicker ones. So there the kept figure stands if it is the lower one, and what was measured is not kept. Where nothing
is kept it is confirmed like any other, and may have taken longer than alone by as much as its cores were slower.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, replace

from kerneldojo.judging.verdict import Findings
from kerneldojo.schema import content_hash

Interval = tuple[float, float]
"""A 95 % interval, in microseconds a call."""

MOST_USES = 50
"""Verdicts that one figure serves."""
LONGEST_SECONDS = 600.0
"""It serves at most."""
REMEMBERED_SECONDS = 3600.0
"""After which a figure that is worn out bounds nothing any more."""
MOST_KEPT = 512
NOISE = 1.02
"""So many times a kept figure is believed unasked, if their intervals meet: nobody gains much by that, and some of a
hundred verdicts tell as much on a quiet host."""


@dataclass(frozen=True)
class Settled:
    """What a verdict is to be held against."""

    per_call_us: float
    interval_us: Interval
    is_doubtful: bool = False
    """Whether it is more than anybody has seen, so that it needs to be confirmed."""


@dataclass
class _Kept:
    per_call_us: float
    interval_us: Interval
    taken: float
    num_uses: int = 0


class ReferenceTimes:
    """Figures by key (problem hash, baseline, class of arithmetic); one of these a device. Thread-safe.

    Args:
        is_reused: whether a kept figure stands for what would be measured; else it only bounds that.
        most_uses: verdicts that one figure serves.
    """

    def __init__(self, *, is_reused: bool = True, most_uses: int = MOST_USES) -> None:
        self._is_reused, self._most_uses = is_reused, most_uses
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def has(self, key: str) -> bool:
        """Whether a figure is kept that may still be used; if so, this verdict's need not be sharp."""
        return self.kept_us(key) is not None

    def kept_us(self, key: str) -> float | None:
        """What a call takes by the figure that is kept and may still be used; None if there is none."""
        with self._lock:
            kept = self._remembered(key)
            return kept.per_call_us if kept is not None and self._stands(kept) else None

    def settle(self, key: str, per_call_us: float, interval_us: Interval, *, is_slowed: bool = False) -> Settled:
        """The figure to use, given what was measured just now; what is doubtful is not kept before it is confirmed.

        Args:
            key: see `reference_key`.
            per_call_us, interval_us: as measured.
            is_slowed: whether launches may bind it, and the cores were slow: then nobody keeps it.
        """
        measured = Settled(per_call_us, interval_us)
        with self._lock:
            kept = self._remembered(key)
            if kept is None:
                return replace(measured, is_doubtful=True)
            if is_slowed and per_call_us > kept.per_call_us:
                return self._agreed(key, kept, measured, is_slowed=True)
            if self._would_raise(kept, measured):
                return replace(measured, is_doubtful=True)
            if _overlap(kept.interval_us, interval_us):
                return self._agreed(key, kept, measured, is_slowed=is_slowed)
            del self._kept[key]  # Where it is reused, a lower one is not measured sharply: the next verdict's will be.
            if not self._is_reused:
                self._keep(key, measured)
            return measured

    def confirm(
        self,
        key: str,
        measured: Settled,
        alone: tuple[float, Interval],
        *,
        leeway: float = 1.0,
        is_slowed: bool = False,
    ) -> Settled:
        """The figure to use instead of a doubtful one, given what the reference took with nobody there to slow it.

        Never beyond what was measured beside the candidate, whose time was taken in the same minute: it is held against
        what its reference took then, or less.

        Args:
            key: see `reference_key`.
            measured: the doubtful one.
            alone: figure and interval of the other.
            leeway: how many times as long as alone it may have taken for the cores that it had; 1 if that is none of
                the cores' doing.
            is_slowed: whether its cores were slow when it was alone, too: then nothing is kept.
        """
        times = min(leeway, max(1.0, measured.per_call_us / alone[0])) if alone[0] > 0 else 1.0
        found = Settled(times * alone[0], (times * alone[1][0], times * alone[1][1]))
        is_borne_out = measured.per_call_us <= min(found.interval_us[1], NOISE * found.per_call_us)
        is_sharper = _width(measured.interval_us) <= _width(found.interval_us)
        is_higher = found.per_call_us > measured.interval_us[1]
        if is_borne_out and (is_sharper or is_higher):
            found = replace(measured, is_doubtful=False)
        with self._lock:
            kept = self._remembered(key)
            if kept is not None and not is_borne_out and self._is_seen_again(kept, *alone):
                kept.num_uses += 1
                return Settled(kept.per_call_us, kept.interval_us)
            if not is_slowed:  # What slower cores have added to it is left out.
                self._keep(key, Settled(*alone) if times > 1 else found)
            return found

    def _would_raise(self, kept: _Kept, measured: Settled) -> bool:
        """Whether a figure is higher than the kept one, and somebody would be credited with it or it would be kept."""
        if measured.per_call_us <= kept.per_call_us:
            return False
        if self._is_worn(kept) or not _overlap(kept.interval_us, measured.interval_us):
            return True
        is_sharper = _width(measured.interval_us) < _width(kept.interval_us)
        return measured.per_call_us > NOISE * kept.per_call_us and (is_sharper or not self._is_reused)

    def _is_seen_again(self, kept: _Kept, alone_us: float, interval_us: Interval) -> bool:
        """Whether a kept figure that is not worn out is what the reference took alone."""
        low_us, high_us = sorted((kept.per_call_us, alone_us))
        is_near = high_us <= NOISE * low_us and _overlap(kept.interval_us, interval_us)
        return is_near and not self._is_worn(kept)

    def _agreed(self, key: str, kept: _Kept, measured: Settled, *, is_slowed: bool) -> Settled:
        """The figure to use where what was measured says nothing against the kept one."""
        if self._is_worn(kept) and not is_slowed:
            self._keep(key, measured)
            return measured
        kept.num_uses += 1
        is_lower = measured.per_call_us < kept.per_call_us
        is_sharper = _width(measured.interval_us) < _width(kept.interval_us)
        if is_sharper and is_lower and not is_slowed:
            kept.per_call_us, kept.interval_us = measured.per_call_us, measured.interval_us
        if not self._is_reused and (is_lower or not is_slowed):
            return measured
        return Settled(kept.per_call_us, kept.interval_us)

    def _keep(self, key: str, found: Settled) -> None:
        self._kept[key] = _Kept(found.per_call_us, found.interval_us, time.monotonic())
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)

    def _stands(self, kept: _Kept) -> bool:
        """Whether it stands for what would be measured."""
        return self._is_reused and not self._is_worn(kept)

    def _is_worn(self, kept: _Kept) -> bool:
        return kept.num_uses >= self._most_uses or time.monotonic() - kept.taken > LONGEST_SECONDS

    def _remembered(self, key: str) -> _Kept | None:
        kept = self._kept.get(key)
        if kept is not None and time.monotonic() - kept.taken > REMEMBERED_SECONDS:
            del self._kept[key]
            return None
        return kept


def _overlap(one: Interval, other: Interval) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _width(interval: Interval) -> float:
    return interval[1] - interval[0]


def reference_key(findings: Findings) -> str:
    """What a reference time depends on besides the device; the mode follows from the problem."""
    protocol = findings.protocol
    return content_hash("reference", findings.problem.hash, protocol.baseline, str(findings.precision_class))
