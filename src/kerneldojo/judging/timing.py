"""Measured time: windows of secret lengths, read by the judge's own clock, and outputs of timed calls compared.

`kernel_ms` is the slope of the window's duration over its length, so that everything which a window costs once (the
signal, the switch between contexts, the judge's own sampling) does not enter. The reference is measured in the same
rounds, on the same inputs, while the candidate's processes stand still. See `docs/timing.md`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kerneldojo.devices.cuda import page as pages
from kerneldojo.devices.cuda import trials
from kerneldojo.devices.cuda.trials import Trials
from kerneldojo.devices.cuda.window import Side
from kerneldojo.devices.cuda.window_rounds import Effort
from kerneldojo.judging.ends import HostedEnd, Late, Tampered
from kerneldojo.judging.hosted import Hosted
from kerneldojo.judging.inspection import Inspection
from kerneldojo.judging.preparation import Prepared
from kerneldojo.judging.protocol import Protocol
from kerneldojo.judging.reference_times import reference_key
from kerneldojo.judging.rounds import Match
from kerneldojo.judging.ruling import exploit, of_candidate
from kerneldojo.judging.sides import SideEnded, post, post_reference, side
from kerneldojo.judging.stops import stopped
from kerneldojo.judging.verdict import Findings


def run(
    bench: Any,
    prepared: Prepared,
    match: Match,
    findings: Findings,
    between: Callable[[], None] | None = None,
    slowness: float = 1.0,
) -> None:
    """Run the windows: this alone needs the device to itself. May be done again; the last time counts.

    Args:
        bench: whose stopwatch it is.
        prepared: by `prepare`.
        match: reference and contestant.
        findings: where the argument trees are, and the protocol.
        between: called every few rounds, while no side is at work.
        slowness: of the cores in its window; see `seats.Reserved`.

    Raises:
        Ruling: the contestant ended, or what it returned in timed calls was wrong, reused or nowhere.
    """
    prepared.inspection = None  # Of the series before this one: calls that it remembers may fill what there is.
    known_us = bench.reference_times.kept_us(reference_key(findings)) if bench.reference_times is not None else None
    sides: dict[str, Side] = {}
    for name, hosted in prepared.hosted.items():
        layouts = prepared.outputs if name == "reference" else prepared.layouts
        is_decisive = name == "contestant" or (name == "reference" and known_us is None)
        sides[name] = replace(
            side(name, hosted, layouts),
            is_decisive=is_decisive,
            is_trusted=name == "reference",
            every=2 if name == "twin" else 1,
            kept=prepared.kept,
        )
    inspection = Inspection(
        sides, prepared.inputs, bench.stopwatch, may_change_inputs=prepared.reference_changes_inputs
    )
    try:
        _post(bench, prepared, match, findings, sides)
        effort = _effort(bench, findings.protocol, slowness, 1e6 * prepared.call_seconds, known_us)
        result = _run(bench, prepared, sides, effort, inspection, between)
    except SideEnded as ended:
        _hear_others(prepared, ended.side)
        if ended.side == "twin":  # It broke without its kernels: then its time says nothing, and others go on.
            del prepared.hosted["twin"]
            run(bench, prepared, match, findings, between, slowness)
            return
        if ended.side == "reference":
            inspection.look_at_inputs()
            inspection.check_inputs()
            raise match.reference.fault(ended.end, "timed calls") from None
        raise of_candidate(ended.end, "timed calls") from None
    _collect(match, prepared.hosted.get("twin"), result, inspection)
    if inspection.wrong is not None:
        raise inspection.wrong
    prepared.result, prepared.inspection = result, inspection


def _post(bench: Any, prepared: Prepared, match: Match, findings: Findings, sides: dict[str, Side]) -> None:
    """Start each side's series; raises `SideEnded`, after which none goes on."""
    names = sorted(prepared.hosted, key=lambda name: name != "reference")
    for number, name in enumerate(names):
        try:
            if name == "reference":
                post_reference(match.reference, findings)
            else:
                post(prepared.hosted[name])
        except HostedEnd as end:  # It may have ended, or said what nobody asked, since it was heard last.
            for begun in names[:number]:
                bench.stopwatch.end(sides[begun])
            raise SideEnded(name, end) from None


def _effort(bench: Any, protocol: Protocol, slowness: float, told_us: float, known_us: float | None) -> Effort:
    """How much is measured of a candidate that says that a call takes `told_us`; `known_us` is what its reference's do.

    Rounds of a few calls come before that of more, but not where calls are known to be quick. Who says that its own
    are, and they are not, has longer windows before those that count, and that is all. Nor does it change what counts
    to say that they are slow: the first round tells.
    """
    is_quick = known_us is not None and max(known_us, told_us) < trials.SLOW_US
    return Effort(
        min_windows=max(8, protocol.num_trials // 8),
        max_windows=max(16, protocol.num_trials),
        min_calls=protocol.num_trials,
        target_error=protocol.timing_error,
        seconds=protocol.timing_seconds,
        warm_up_windows=0 if is_quick else 1,
        is_slow=trials.SLOW_US < told_us < math.inf,
        slowness=slowness,
        is_brisk=bench.pace.brisk_rounds,
    )


def _run(
    bench: Any,
    prepared: Prepared,
    sides: dict[str, Side],
    effort: Effort,
    inspect: Inspection,
    between: Callable[[], None] | None,
) -> Trials:
    candidates = [hosted.session for name, hosted in prepared.hosted.items() if name != "reference"]
    try:
        return trials.run(
            bench.stopwatch,
            list(sides.values()),
            prepared.inputs,
            bench.clock,
            effort,
            inspect=inspect,
            still=lambda: stopped(candidates),
            between=between,
        )
    except pages.Late as late:
        raise SideEnded(late.side or "contestant", Late("timed calls")) from None


def _hear_others(prepared: Prepared, ended: str) -> None:
    """Their series were ended with it: hear so, that they can be asked other things."""
    for name, hosted in prepared.hosted.items():
        if name != ended and not hosted.session.is_idle():
            with contextlib.suppress(HostedEnd):
                hosted.session.collect(10.0)


def _collect(match: Match, twin: Hosted | None, result: Trials, inspection: Inspection) -> None:
    """Hear how each side's series ended."""
    try:
        match.reference.hosted.session.collect(60.0)
    except HostedEnd as end:
        inspection.check_inputs()
        raise match.reference.fault(end, "timed calls") from None
    if twin is not None:
        try:
            twin.session.collect(30.0)
        except HostedEnd:
            result.series.pop("twin", None)  # It broke without its kernels: then its time says nothing.
    failed = result.series["contestant"].failed
    try:
        match.contestant.hosted.session.collect(60.0)
    except HostedEnd as end:
        if failed == pages.NOT_PLAIN:
            raise exploit("lazy_tensor", "in timed calls an output was no plain tensor on the device") from None
        raise of_candidate(end, "timed calls") from None
    if failed != pages.OK:  # Our loop in it would have told that in its answer, too.
        raise of_candidate(Tampered("its calls failed and it says they did not"), "timed calls")
