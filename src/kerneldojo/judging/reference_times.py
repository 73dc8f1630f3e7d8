"""Reference times, measured once and checked again: the same problem's reference need not be timed sharply each time.

The trade. A speedup is honest if both times were taken under the same conditions. Taking the reference's from an
earlier verdict gives up the same minute, and gains steadiness (all candidates of a problem are held against one figure)
and time (windows go on only until the candidate's figure is sharp). What keeps it honest: the reference still takes
part, since its outputs are what timed outputs are compared with, so that a rough time of it comes for nothing.
If that is lower than the kept figure by more than both intervals, the kept one is thrown away and this verdict stands
on its own measurement. A kept figure is also worn out, by age and by number of uses: then it is measured anew.

If it is higher, the device has drifted, or the candidate has slowed its reference: work that it left on the device goes
on while its processes stand still. So nobody gains by it at once. The kept figure stands for this verdict, and the next
one's is measured sharply: if that is as high, it is kept from then on; if not, the kept one stands as before. (Two in a
row that slow it by the same are believed.) One that is worn out stands for that much, too, for an hour.

What launches bind takes longer on cores that are slow, and that is no drift of the device: the candidate may have had
quicker ones. So there the kept figure stands if it is the lower one, and what was measured is not kept.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

from kerneldojo.judging.verdict import Findings
from kerneldojo.schema import content_hash

MOST_USES = 50
LONGEST_SECONDS = 600.0
REMEMBERED_SECONDS = 3600.0
"""After which a figure that is worn out bounds nothing any more."""
MOST_KEPT = 512
SHARP = 0.03
"""Part of a figure that its interval has, at most, if the figure is to stand against one that is kept."""


@dataclass
class _Kept:
    per_call_us: float
    interval_us: tuple[float, float]
    taken: float
    num_uses: int = 0
    doubt: tuple[float, float] | None = None
    """The interval of a verdict that found it to be too low."""


class ReferenceTimes:
    """Figures by key (problem hash, baseline, class of arithmetic); one of these a device. Thread-safe.

    Args:
        most_uses: verdicts that one figure serves.
        longest_seconds: how long it serves at most.
        remembered_seconds: how long nobody is credited with a slower reference at once.
    """

    def __init__(
        self,
        most_uses: int = MOST_USES,
        longest_seconds: float = LONGEST_SECONDS,
        remembered_seconds: float = REMEMBERED_SECONDS,
    ) -> None:
        self._most_uses, self._longest_seconds = most_uses, longest_seconds
        self._remembered_seconds = remembered_seconds
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def has(self, key: str) -> bool:
        """Whether a figure is kept that may still be used; if so, this verdict's need not be sharp."""
        return self.kept_us(key) is not None

    def kept_us(self, key: str) -> float | None:
        """What a call takes by the figure that is kept and may still be used; None if there is none without doubt."""
        with self._lock:
            kept = self._remembered(key)
            return None if kept is None or kept.doubt is not None or self._is_worn(kept) else kept.per_call_us

    def settle(
        self, key: str, per_call_us: float, interval_us: tuple[float, float], *, is_slowed: bool = False
    ) -> tuple[float, tuple[float, float]]:
        """The figure to use, given what was measured just now, with its 95 % interval; both in microseconds a call.

        Args:
            key: see `reference_key`.
            per_call_us, interval_us: as measured.
            is_slowed: whether launches may bind it, and the cores were slow.
        """
        measured = per_call_us, interval_us
        with self._lock:
            kept = self._remembered(key)
            if kept is None:
                self._keep(key, *measured, is_slowed=is_slowed)
                return measured
            is_higher = per_call_us > kept.per_call_us
            if (is_slowed and is_higher) or _overlap(kept.interval_us, interval_us):
                return self._agreed(key, kept, *measured, is_slowed=is_slowed)
            if is_higher and not (
                kept.doubt is not None and _is_sharp(*measured) and _overlap(kept.doubt, interval_us)
            ):
                kept.num_uses, kept.doubt = kept.num_uses + 1, interval_us
                return kept.per_call_us, kept.interval_us
            del self._kept[key]
            if is_higher:  # Measured sharply, for there was doubt; a lower one is not, and the next verdict's will be.
                self._keep(key, *measured, is_slowed=is_slowed)
            return measured

    def _agreed(
        self, key: str, kept: _Kept, per_call_us: float, interval_us: tuple[float, float], *, is_slowed: bool
    ) -> tuple[float, tuple[float, float]]:
        """The figure to use where what was measured says nothing against the kept one."""
        kept.doubt = None
        if self._is_worn(kept) and not is_slowed:
            self._keep(key, per_call_us, interval_us, is_slowed=is_slowed)
            return per_call_us, interval_us
        kept.num_uses += 1
        if _width(interval_us) < _width(kept.interval_us) and not is_slowed:  # Sharper than what was kept.
            kept.per_call_us, kept.interval_us = per_call_us, interval_us
        return kept.per_call_us, kept.interval_us

    def _keep(self, key: str, per_call_us: float, interval_us: tuple[float, float], *, is_slowed: bool) -> None:
        if is_slowed:
            return
        self._kept[key] = _Kept(per_call_us, interval_us, time.monotonic())
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)

    def _is_worn(self, kept: _Kept) -> bool:
        return kept.num_uses >= self._most_uses or time.monotonic() - kept.taken > self._longest_seconds

    def _remembered(self, key: str) -> _Kept | None:
        kept = self._kept.get(key)
        if kept is not None and time.monotonic() - kept.taken > self._remembered_seconds:
            del self._kept[key]
            return None
        return kept


def _is_sharp(per_call_us: float, interval_us: tuple[float, float]) -> bool:
    return _width(interval_us) <= SHARP * per_call_us


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _width(interval: tuple[float, float]) -> float:
    return interval[1] - interval[0]


def reference_key(findings: Findings) -> str:
    """What a reference time depends on besides the device; the mode follows from the problem."""
    protocol = findings.protocol
    return content_hash("reference", findings.problem.hash, protocol.baseline, str(findings.precision_class))
