"""A reference's time, taken when nobody is alive who could slow it.

While the reference is timed its candidate stands still, and what that left on the device goes on: no stop of a process
stops a kernel. Once the process is dead its context is gone, and all that was queued in it. So a figure that nobody has
seen before is taken again then: a few windows of the reference alone, which cost others some 50 ms, and nearly always
the first verdict on a problem alone. What it computes on is written anew, for the dead could write there until they
were: indices that are all the same can make a reference three times as slow. The caches are cold as ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kerneldojo.devices.cuda import page as pages
from kerneldojo.devices.cuda.fits import Fit, Window, fit
from kerneldojo.devices.cuda.lengths import plan_lengths
from kerneldojo.devices.cuda.sampling import draw_plan
from kerneldojo.devices.cuda.window import Side, Stopwatch
from kerneldojo.judging import figures
from kerneldojo.judging.ends import Failed, HostedEnd, Late
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.preparation import Prepared
from kerneldojo.judging.processes import Session
from kerneldojo.judging.reference import Reference
from kerneldojo.judging.reference_times import reference_key
from kerneldojo.judging.rounds import Match
from kerneldojo.judging.sides import LATE_SECONDS, SideEnded, compile_baseline, post_reference, side
from kerneldojo.judging.verdict import Findings

FEWEST, MOST = 9, 30
"""Windows."""
ENOUGH_SECONDS = 0.3
"""After which there are no more than the fewest, be the figure sharp or not: of long calls few tell enough."""


def confirm(
    bench: Any,
    guest: Guest,
    findings: Findings,
    match: Match,
    prepared: Prepared,
    of_candidate: Sequence[Session],
) -> None:
    """Credit the candidate with a reference time that is in doubt, or with what the reference takes alone.

    Args:
        bench, guest: where, and whose.
        findings: to be filled in.
        match: who was timed.
        prepared: with a series in it; without a doubt nothing is done.
        of_candidate: its processes, of which nothing more is asked: they are ended.

    Raises:
        Ruling: the reference broke, or nothing was measured.
        Infrastructure: others kept the device busy.
    """
    doubtful = prepared.doubtful
    if doubtful is None:
        return
    assert prepared.result is not None
    with findings.stage("end"):
        bench.end(guest, of_candidate)
    with findings.stage("confirmation"):
        prepare(prepared, match, findings)
    found: list[Fit] = []

    def take() -> None:
        with findings.stage("confirmation"):
            found[:] = [measure(bench, prepared, match.reference, findings)]

    bench.measure_alone(guest, findings, take)
    leeway, is_slowed = _by_cores(bench, findings, doubtful.per_call_us, guest.slowness)
    settled = bench.reference_times.confirm(
        reference_key(findings),
        doubtful,
        (found[0].per_call_us, found[0].interval_us),
        leeway=leeway,
        is_slowed=is_slowed,
    )
    if settled.interval_us[1] < doubtful.interval_us[0]:
        times = doubtful.per_call_us / settled.per_call_us
        findings.notes.append(
            f"beside the candidate its reference took {times:.2f} times as long as it is credited with"
        )
    figures.credit(findings, prepared.result, settled)


def _by_cores(bench: Any, findings: Findings, measured_us: float, slowness: float) -> tuple[float, bool]:
    """How many times as long as alone a reference may have taken for its cores, and whether those alone were slow, too.

    Args:
        bench, findings: where, and what is known; with the slowness of the cores in the series.
        measured_us: what it took in that.
        slowness: of the cores when it was alone; see `seats.Reserved`.
    """
    was_slowed = figures.is_slowed(bench, findings, measured_us, findings.slowness)
    leeway = max(1.0, findings.slowness / slowness) if was_slowed else 1.0
    return leeway, figures.is_slowed(bench, findings, measured_us, slowness)


def prepare(prepared: Prepared, match: Match, findings: Findings) -> None:
    """See that the reference can be timed again, while others may use the device: it may have been asked for `cause`.

    Args:
        prepared: with a series in it.
        match: of the reference that was timed, and a contestant that is dead.
        findings: how it was timed.

    Raises:
        Ruling: the reference broke.
    """
    match.birth = None  # There may be no room for two sets of weights, and nobody needs one any more.
    if match.reference.begun != "timed":
        match.conceive("timed")
        match.birth = None
        compile_baseline(match.reference, prepared.arguments.of(match.reference.hosted), findings)


def measure(bench: Any, prepared: Prepared, reference: Reference, findings: Findings) -> Fit:
    """Time the reference alone; the device must be idle.

    Args:
        bench: whose stopwatch it is.
        prepared: with a series in it, in which the reference was timed.
        reference: whose last windows those were.
        findings: how it was timed.

    Raises:
        Ruling: the reference broke, which is no fault of the candidate's.
    """
    assert prepared.result is not None
    before = prepared.result.series["reference"].windows
    longest = max((window.length for window in before), default=2)
    is_warmed = any(window.is_warmed for window in before)
    one = replace(side("reference", reference.hosted, prepared.outputs), is_trusted=True)
    _renew(prepared, prepared.inputs.count)

    def window(length: int, number: int) -> Window:
        if number and prepared.reference_changes_inputs:
            _renew(prepared, length)
        return _window(bench.stopwatch, one, length, number, is_warmed=is_warmed)

    try:
        post_reference(reference, findings)
        try:
            windows = _windows(window, longest, findings.protocol.timing_error)
        finally:
            bench.stopwatch.end(one)
            reference.hosted.session.collect(LATE_SECONDS)
    except SideEnded as ended:
        raise reference.fault(ended.end, "timed calls") from None
    except pages.Late:
        raise reference.fault(Late("timed calls"), "timed calls") from None
    except HostedEnd as end:
        raise reference.fault(end, "timed calls") from None
    return fit(windows, is_trusted=True)


def _renew(prepared: Prepared, length: int) -> None:
    """Write new content into the first so many sets, where there is anything left to make it from."""
    if prepared.inputs.can_refresh:
        prepared.inputs.refresh(length)


def _windows(window: Callable[[int, int], Window], longest: int, target_error: float) -> list[Window]:
    """As many as it takes, of all lengths; `window` times one of a length, and is told how many there were before."""
    windows: list[Window] = []
    lengths: list[int] = []
    start = time.monotonic()
    while len(windows) < MOST:
        if not lengths:
            lengths = plan_lengths(longest, FEWEST, [index / (2 * FEWEST) for index in range(2 * FEWEST)])
        windows.append(window(lengths.pop(), len(windows)))
        if len(windows) >= FEWEST and not len(windows) % 3:  # As many of each kind of length.
            is_sharp = fit(windows, is_trusted=True).relative_error <= target_error
            if is_sharp or time.monotonic() - start > ENOUGH_SECONDS:
                break
    return windows


def _window(stopwatch: Stopwatch, one: Side, length: int, number: int, *, is_warmed: bool) -> Window:
    page = one.arena.page
    page.put_last(0, page.last(0))  # The inputs stay as they are.
    timed = stopwatch.time(one, length, draw_plan(length, one.layouts), is_warmed=is_warmed)
    if timed.state != pages.OK:
        raise SideEnded(one.name, Failed("runtime_error", "a call failed"))
    stopwatch.order_release(one)
    stopwatch.await_release(one)
    return timed.window(number, is_warmed=is_warmed)
