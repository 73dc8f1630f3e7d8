"""What the judge's clock allows a candidate: what a call is charged with, and how much its own kernels account for.

Pure functions of windows and of the lines through them (`fits`). Each holds what a candidate could have done unseen
against the reference runner, which is trusted: calls that are computed all at once, and device time that is said to be
its own kernels'. Times are in microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kerneldojo.devices.cuda.fits import Fit, Window

SYSTEMATIC_US = 5.0
"""What one call alone may cost beyond the fixed overhead for reasons of its own: cold translation caches, a context
that was just switched in. Measured on an H200: 2 to 4 us."""
PLAINLY = 4.0
"""If one call alone costs so many times what one of many does, they are batched, though one of two ways to read it off
leaves it open. Of 216 recorded series of honest kernels on busy hosts none comes near: 2.8 times beyond doubt, 3.2 with
it."""
MOST_BLUR = 0.2
"""Half an interval over its figure from which the figure is blurred: on a host that quick, 0.01 to 0.03 are usual."""


@dataclass(frozen=True)
class Charge:
    """What a call is charged with, and why."""

    per_call_us: float
    interval_us: tuple[float, float]
    batched: bool
    """Whether calls in a row cost so much less than one alone that they were not computed one by one."""
    evidence: str = ""
    """For `batched`: the two figures."""


def charge(
    measured: Fit,
    overhead_us: float,
    overhead_error_us: float,
    paired: tuple[float, float] | None = None,
    slowness: float = 1.0,
) -> Charge:
    """What a call costs, given what a window costs around its calls.

    One call alone takes its time on the host, then its time on the device. Calls in a row overlap the two, so that each
    costs the larger: never less than half of what one alone costs. A slope below that half, beyond the errors, means
    that calls were not computed one by one; then one alone is what counts. Where cores are slow the one, which is
    launched cold, was seen to cost three times as much as one of many: so what it may cost grows with them, up to
    `PLAINLY` times as much. Until there it must cost more beyond doubt however it is read; from there on, on the whole.

    Args:
        measured: the candidate's windows.
        overhead_us: fixed cost of a window: `Fit.around_us` of a process that is trusted for it, the reference
            runner's.
        overhead_error_us: half the 95 % interval of that; `Fit.single_error_us` of the same process will do.
        paired: what one call alone costs as `alone` has it.
        slowness: of the host's cores, how many times as long as at their quickest they took.
    """
    plain = Charge(measured.per_call_us, measured.interval_us, batched=False)
    if measured.single_us is None:
        return plain
    by_shortest = measured.single_us - overhead_us, math.hypot(measured.single_error_us, overhead_error_us)
    estimates = [by_shortest] if paired is None else [by_shortest, paired]
    together = by_shortest if paired is None else _together(estimates)
    slope_us = measured.interval_us[1]
    if _is_beyond(together, PLAINLY * slope_us):
        alone_us, error = together
    elif all(_is_beyond(estimate, min(2 * slowness, PLAINLY) * slope_us) for estimate in estimates):
        alone_us, error = min(estimates)
    else:
        return plain
    evidence = f"a call alone takes {alone_us:.1f} us, calls in a row {measured.per_call_us:.1f} us each"
    return Charge(alone_us, (max(alone_us - error, 0.0), alone_us + error), batched=True, evidence=evidence)


def of_few(charge: Charge, windows: Sequence[Window]) -> Charge:
    """The charge of a side that had few windows, each of calls so long that what is around them is nothing beside them.

    Resampled, so few say little of how far they scatter: the interval has to hold what each of them says of a call.
    """
    each = [window.wall_us / window.length for window in windows]
    low_us, high_us = charge.interval_us
    return replace(charge, interval_us=(min(low_us, *each), max(high_us, *each)))


def _is_beyond(estimate: tuple[float, float], limit_us: float) -> bool:
    one, doubt = estimate
    return one - doubt - SYSTEMATIC_US > limit_us


def _together(estimates: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """One figure for several of the same windows, each with half its 95 % interval.

    A sharp one counts for more than one that is not: whoever sleeps at random where there is one call blurs the
    shortest such window and is not to gain by it, and on a busy host it is blurred anyway. Since all are of the same
    windows, they are no sharper together than the sharpest of them.
    """
    weights = [1 / (doubt**2 + SYSTEMATIC_US**2) for _, doubt in estimates]
    mean = sum(weight * one for weight, (one, _) in zip(weights, estimates, strict=True)) / sum(weights)
    return mean, min(doubt for _, doubt in estimates)


def is_blurred(per_call_us: float, interval_us: tuple[float, float]) -> bool:
    """Whether a figure says little: its interval is wide, or it is not even positive."""
    return per_call_us <= 0 or interval_us[1] - interval_us[0] > 2 * MOST_BLUR * per_call_us


def no_less(per_call_us: float, interval_us: tuple[float, float], mean_us: float) -> float:
    """What a candidate's call is charged with: its figure, or where that is blurred the most that it can be.

    A candidate can blur its own figure, by sleeping at random, and on a busy host chance may do so: neither is to buy
    a speedup.

    Args:
        per_call_us, interval_us: its slope, and 95 % interval of that.
        mean_us: `Fit.mean_us`; no call costs more in the mean.
    """
    if not is_blurred(per_call_us, interval_us):
        return per_call_us
    return mean_us if per_call_us <= 0 else min(interval_us[1], mean_us)


def no_more(per_call_us: float, interval_us: tuple[float, float]) -> float:
    """What a reference's call counts for: its figure, or where that is blurred the lower end of its interval, which may
    be negative: then nothing was measured."""
    return interval_us[0] if is_blurred(per_call_us, interval_us) else per_call_us


def alone(measured: Sequence[Window], trusted: Sequence[Window], trusted_us: float) -> tuple[float, float] | None:
    """What one call alone costs, and half the 95 % interval of that; None with fewer than three pairs of windows.

    By the differences between windows of one call that lie next to each other: after the last call the device takes
    240 or 310 us by turns to come back to the judge, and turns last for several windows.

    Args:
        measured: a side's windows.
        trusted: those of the reference runner, some in the same rounds.
        trusted_us: what a call of its costs.
    """
    singles = {window.turn: window.from_signal_us for window in trusted if window.length == 1 and window.undisturbed}
    differences = np.array(
        [
            window.from_signal_us - singles[window.turn]
            for window in measured
            if window.length == 1 and window.undisturbed and window.turn is not None and window.turn in singles
        ]
    )
    if len(differences) < 3:
        return None
    middle = float(np.median(differences))
    scatter = 1.4826 * float(np.median(np.abs(differences - middle)))
    return middle + trusted_us, 1.96 * 1.2533 * scatter / math.sqrt(len(differences))


def host_bound(device_us: float, per_call_us: float) -> bool:
    """Whether the device was busy for less than 80 % of the time, so that launching is what was measured.

    Args:
        device_us: what the kernels of a call take, each by itself, as profiled. Not the time between two events: on
            a device that is idle the first one is over long before what is launched after it has arrived.
        per_call_us: of calls in a row.
    """
    return device_us < 0.8 * per_call_us


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
