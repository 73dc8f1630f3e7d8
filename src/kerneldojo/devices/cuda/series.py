"""What windows of one side say together: the line through them, and what a call of that side is charged."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kerneldojo.devices.cuda import charges, head_starts
from kerneldojo.devices.cuda import page as pages
from kerneldojo.devices.cuda.charges import Charge
from kerneldojo.devices.cuda.fits import Fit, Window, fit


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


def fits(series: Mapping[str, Series], *, is_final: bool = False) -> dict[str, Fit]:
    """The line through each side's windows, without the sides that have too few for one.

    Args:
        series: of each side.
        is_final: whether there will be no more windows. Then all count of a side of which nearly all are left out where
            those of one that is trusted are not: it is its own context that it brings in as it likes, and that must not
            leave a verdict without a time.
    """
    found: dict[str, Fit] = {}
    reading_us = 0.0
    trusted: list[Window] = []
    for name, one in sorted(series.items(), key=lambda item: not item[1].is_trusted):  # These tell what is usual.
        windows = head_starts.with_time_before(one.windows, trusted)
        try:
            found[name] = fit(windows, is_trusted=one.is_trusted, reading_us=reading_us)
        except ValueError:
            if not is_final or not any(series[other].is_trusted for other in found):
                continue
            with contextlib.suppress(ValueError):
                found[name] = fit([replace(window, undisturbed=True) for window in windows], reading_us=reading_us)
        if one.is_trusted:
            trusted = one.windows
            reading_us = found[name].reading_us
    return found


def charge(
    series: Mapping[str, Series], found: Mapping[str, Fit], name: str, trusted: str, slowness: float = 1.0
) -> Charge:
    """What a call of one side costs, by its windows and those of one that is trusted.

    Args:
        series, found: as for and from `fits`.
        name, trusted: of the two sides.
        slowness: as for `charges.charge`.
    """
    around = found[trusted]
    paired = charges.alone(series[name].windows, series[trusted].windows, around.per_call_us)
    return charges.charge(found[name], around.around_us, around.single_error_us, paired, slowness)
