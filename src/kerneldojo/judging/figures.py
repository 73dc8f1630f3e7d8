"""From series of windows to a verdict's figures: what a call took, what is charged, and what no honest kernel can take.

Nothing here runs a candidate: the windows were timed (`timing`), and the device may be others' by now.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from kerneldojo.contestant import tree
from kerneldojo.devices.cuda import charges, head_starts
from kerneldojo.devices.cuda.series import Series
from kerneldojo.devices.cuda.series import charge as charge_of
from kerneldojo.devices.cuda.trials import Trials
from kerneldojo.judging.contestant import Answer
from kerneldojo.judging.inspection import Witness
from kerneldojo.judging.outputs import check_outputs
from kerneldojo.judging.preparation import Prepared
from kerneldojo.judging.reference_times import Settled, reference_key
from kerneldojo.judging.rounds import Match, secret_seed
from kerneldojo.judging.ruling import Ruling, exploit
from kerneldojo.judging.verdict import SLOW_HOST, Findings
from kerneldojo.schema import Roofline, Status, Timing

MAY_BE_LAUNCHES_US = 70.0
"""No launch binds what is slower: nearly all of the suite's kernels that differ between verdicts are quicker."""
SCATTERED = "times scattered: of the intervals, the ends count that do the candidate no favour"
"""Said of a verdict in which one of the two figures is blurred."""
FEW_TRIALS = "timed in few calls, for it takes far longer than the reference"
"""Said of who is hopeless: see `trials.HOPELESS`."""
MOSTLY = 0.7
"""Nor what the memory needs for the problem's own data for more than this part of it."""


def doubt(bench: Any, prepared: Prepared, findings: Findings, slowness: float) -> str:
    """Why the last series should not stand alone, or nothing. What is slow about a host lasts for seconds at times, so
    that one series is not enough to hold it against a candidate. Who cheats in one series alone is timed in the other.

    What it pays for its time before the clock is no reason as long as its figure is in doubt by more than that; neither
    that nor a figure that says little is one for who is hopeless anyway (`trials.HOPELESS`).

    Args:
        bench: whose stopwatch it was.
        prepared: with the series in it.
        findings: the protocol, and what is known of the problem.
        slowness: of the cores in its window; see `seats.Reserved`.
    """
    assert prepared.result is not None
    series, fits = prepared.result.series, prepared.result.fitted
    if "contestant" not in fits or "reference" not in fits:
        return ""
    charge = charge_of(series, fits, "contestant", "reference", slowness)
    if charge.batched:
        return "its calls looked batched"
    mine, theirs = series["contestant"].windows, series["reference"].windows
    is_convicted = _early_us(prepared.result) > head_starts.most_early_us(mine, theirs)
    low_us, high_us = charge.interval_us
    has_paid = head_starts.paid_us(mine, theirs) > (high_us - low_us) / 2
    if is_convicted or (has_paid and not prepared.result.is_hopeless):
        return "it seemed to work before the clock"
    if high_us < 1000 * (_limit_ms(bench, findings) or 0.0):
        return "it seemed faster than the memory"
    return scatter(bench, prepared, findings)


def scatter(bench: Any, prepared: Prepared, findings: Findings) -> str:
    """That a figure of the last series says little, or nothing; of it the end would count that does no favour. A host
    that stalls for a third of a second in one of ten windows can make a call of 20 us look like one of 2,000 so.

    Args:
        bench, prepared, findings: as for `doubt`.
    """
    assert prepared.result is not None
    fits = prepared.result.fitted
    if "contestant" not in fits or "reference" not in fits:
        return ""
    for name in _measured(bench, findings, prepared.result):
        if charges.is_blurred(fits[name].per_call_us, fits[name].interval_us):
            return f"the {name}'s times scattered"
    return ""


def slow_launches(
    bench: Any, prepared: Prepared, findings: Findings, slowness: float, device_us: float | None = None
) -> str:
    """That launches may bind a figure on cores that were slow, or nothing: a reason for one more series, too.

    Whatever the figure is: who could have more series until one is good would be timed as quicker than it is.

    Args:
        bench, prepared, findings, slowness: as for `doubt`.
        device_us: what the kernels of the candidate's call take, by its profile; None while nobody knows.
    """
    assert prepared.result is not None
    fits = prepared.result.fitted
    if "contestant" not in fits or "reference" not in fits:
        return ""
    for name in _measured(bench, findings, prepared.result):
        taken_us = fits[name].per_call_us
        is_busy = name == "contestant" and device_us is not None and not charges.host_bound(device_us, taken_us)
        if is_slowed(bench, findings, taken_us, slowness) and not is_busy:
            return f"the host's cores took {slowness:.1f} times as long as at their quickest"
    return ""


def is_slowed(bench: Any, findings: Findings, taken_us: float, slowness: float) -> bool:
    """Whether launches may bind a call that takes so long, on cores that were slow; the rest is as for `doubt`."""
    is_moving = 1000 * _moving_ms(bench, findings) > MOSTLY * taken_us
    return slowness > SLOW_HOST and taken_us < MAY_BE_LAUNCHES_US and not is_moving


def _measured(bench: Any, findings: Findings, result: Trials) -> list[str]:
    """The sides whose figures have to be sharp: not a reference's that is known from earlier verdicts, nor that of who
    is hopeless."""
    is_known = bench.reference_times is not None and bench.reference_times.has(reference_key(findings))
    return ["contestant"] * (not result.is_hopeless) + ["reference"] * (not is_known)


def finish(bench: Any, prepared: Prepared, match: Match, findings: Findings, slowness: float) -> None:
    """Fill in the timings of `findings`; others may use the device.

    Args:
        bench: whose stopwatch it was.
        prepared: with the series in it.
        match: who took part.
        findings: to be filled in.
        slowness: of the cores in its window; see `seats.Reserved`.

    Raises:
        Ruling: wrong or deferred work in timed calls; below the physical limit.
    """
    assert prepared.result is not None and prepared.inspection is not None
    inspection, prepared.inspection = prepared.inspection, None
    inspection.compare()
    while inspection.witnesses:
        _check(match, inspection.witnesses.pop(), prepared.arguments.values)
    _check_before_the_clock(prepared.result)
    prepared.doubtful = _fill(bench, findings, match, prepared.result, slowness)
    _hold_against_limit(bench, findings)


def _early_us(result: Trials) -> float:
    return head_starts.early_us(result.series["contestant"].windows, result.series["reference"].windows)


def _check_before_the_clock(result: Trials) -> None:
    """See that the candidate did nothing while its context was brought in, when its inputs were nearly all there."""
    early = _early_us(result)
    if early > head_starts.most_early_us(result.series["contestant"].windows, result.series["reference"].windows):
        raise exploit("early_work", f"before each timed window it worked for {early:.0f} us, and no clock ran yet")


def _check(match: Match, witness: Witness, values: Any) -> None:
    """Compare a whole output of a timed call with the oracle, and with what the clock's own sample had seen."""
    for number, indices, sampled in witness.sampled:
        later = witness.outputs[number].reshape(-1)[indices]
        if not torch.equal(later.nan_to_num(7.0), sampled.nan_to_num(7.0)):
            raise exploit("deferred_work", "an output still changed after the call had been reported as done")
    remaining = iter(witness.inputs)
    inputs = tree.with_tensors(values, remaining)
    expected = match.reference.expect("timed", inputs, match.conduct.variants, secret_seed())
    answer = Answer(
        outputs=witness.outputs,
        kinds=[{} for _ in witness.outputs],
        untold=None,
        work=[],
        specializations=[],
        elapsed=0.0,
    )
    try:
        checked = check_outputs(answer, expected, match.conduct.reduction_length, match.delivery)
    except Ruling as ruling:
        if ruling.status is Status.EXPLOIT:
            raise
        raise exploit("wrong_when_timed", "its outputs were right in the rounds and wrong in timed calls") from None
    if match.seen.were_finer(checked):
        raise exploit(
            "wrong_when_timed",
            "its products were in float32 in the rounds, as the reference's are, and in TF32 when timed",
        )


def _fill(bench: Any, findings: Findings, match: Match, result: Trials, slowness: float) -> Settled | None:
    """The figures; if the reference's is one that is to be confirmed (`credit`), that."""
    fits = result.fitted
    if "contestant" not in fits or "reference" not in fits:
        raise Ruling(Status.INFRASTRUCTURE_ERROR, "our fault: the device was disturbed during all windows")
    mine, theirs = fits["contestant"], fits["reference"]
    charge = charge_of(result.series, fits, "contestant", "reference", slowness)
    if result.is_hopeless:
        charge = charges.of_few(charge, result.series["contestant"].windows)
    settled = Settled(theirs.per_call_us, theirs.interval_us)
    if bench.reference_times is not None:
        settled = bench.reference_times.settle(
            reference_key(findings),
            theirs.per_call_us,
            theirs.interval_us,
            is_slowed=is_slowed(bench, findings, theirs.per_call_us, slowness),
        )
    # Of calls that were computed at once the mean is no bound.
    most_us = math.inf if charge.batched else mine.mean_us
    mine_us = charges.no_less(charge.per_call_us, charge.interval_us, most_us)
    if mine_us != charge.per_call_us:
        findings.notes.append(SCATTERED)
    if (early := _early_us(result)) > head_starts.EARLY_US:
        findings.notes.append(f"paid for {early - head_starts.EARLY_US:.0f} us before the calls of each window")
    findings.timing = _timing(result, result.series["contestant"], mine_us, charge.interval_us).model_copy(
        update={
            "first_call_ms": 1000 * match.seen.first_call_seconds or None,
            "construction_ms": 1000 * match.contestant.construction_seconds or None,
        }
    )
    findings.full_fit, findings.slowness = mine, slowness
    findings.naive_speedup = max(0.0, settled.per_call_us) / mine_us or None
    is_silent = "twin" in fits and not result.series["twin"].failed
    if is_silent:
        findings.silenced_us = fits["twin"].per_call_us, fits["twin"].relative_error * fits["twin"].per_call_us
    if result.watch.reasons:
        findings.notes.append(f"the device was throttled while it was timed: {', '.join(result.watch.reasons)}")
    if result.is_hopeless:
        findings.notes.append(FEW_TRIALS)
    if charge.batched:
        findings.notes.append(f"charged as single calls: {charge.evidence}")
    if settled.is_doubtful:
        return settled
    credit(findings, result, settled)
    return None


def credit(findings: Findings, result: Trials, settled: Settled) -> None:
    """Fill in what the candidate's time is held against.

    Args:
        findings: to be filled in.
        result: of the series.
        settled: the reference's figure, which nobody doubts.

    Raises:
        Ruling: nothing was measured.
    """
    theirs_us = charges.no_more(settled.per_call_us, settled.interval_us)
    if theirs_us <= 0:
        raise Ruling(Status.INFRASTRUCTURE_ERROR, "our fault: the host was too busy for times to be taken")
    if theirs_us != settled.per_call_us and SCATTERED not in findings.notes:
        findings.notes.append(SCATTERED)
    findings.reference_timing = _timing(result, result.series["reference"], theirs_us, settled.interval_us)


def _timing(result: Trials, series: Series, per_call_us: float, interval_us: tuple[float, float]) -> Timing:
    spans = sorted(series.spans_us)
    device_us = spans[len(spans) // 2] if spans else None
    return Timing(
        source="measured",
        median_ms=per_call_us / 1000,
        confidence_interval_ms=(interval_us[0] / 1000, interval_us[1] / 1000),
        num_trials=sum(window.length for window in series.windows),
        judge_ms=per_call_us / 1000,
        device_ms=device_us / 1000 if device_us is not None else None,
        clock_mhz=result.watch.range_mhz,
    )


def _moving_ms(bench: Any, findings: Findings) -> float:
    """What memory at its peak takes to move the problem's own data, with nothing of it in the cache; 0 if unknown."""
    bandwidth = bench.clock.peak_bandwidth()
    return 1000 * (findings.compulsory_bytes or 0) / bandwidth if bandwidth else 0.0


def _limit_ms(bench: Any, findings: Findings) -> float | None:
    """The time that the problem's own data takes to move, what fits into the L2 cache aside; None if nobody knows."""
    bandwidth = bench.clock.peak_bandwidth()
    if not bandwidth or not findings.compulsory_bytes:
        return None
    return 1000 * max(0, findings.compulsory_bytes - bench.stopwatch.l2_bytes) / (1.05 * bandwidth)


def _hold_against_limit(bench: Any, findings: Findings) -> None:
    """No kernel is faster than the problem's own data can move."""
    least_ms, kernel_ms = _limit_ms(bench, findings), findings.timing.median_ms
    if least_ms is None or not kernel_ms:
        return
    interval = findings.timing.confidence_interval_ms
    if interval is not None and interval[1] < least_ms:
        raise exploit("below_physical_limit", "it is faster than the memory can move the problem's own data")
    findings.roofline = Roofline(
        limit_ms=least_ms,
        fraction=least_ms / kernel_ms,
        bound="memory",
        compulsory_bytes=findings.compulsory_bytes,
    )
