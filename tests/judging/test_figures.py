"""From series of windows to a verdict's figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import timed_series
import torch
from timed_series import BANDWIDTH, L2_BYTES, series

from kerneldojo.devices.cuda.clock import Reading, Watch
from kerneldojo.devices.cuda.series import Series
from kerneldojo.devices.cuda.trials import Trials
from kerneldojo.judging import figures
from kerneldojo.judging.delivery import Delivery
from kerneldojo.judging.inspection import Witness
from kerneldojo.judging.protocol import protocol
from kerneldojo.judging.reference import Expected
from kerneldojo.judging.reference_times import ReferenceTimes, Settled
from kerneldojo.judging.rounds import Rounds
from kerneldojo.judging.ruling import Ruling, exploit
from kerneldojo.judging.verdict import Findings
from kerneldojo.schema import Candidate, Problem, Status

X = torch.linspace(-1, 1, 256)


def finished(
    findings: Findings,
    *,
    reference_times: ReferenceTimes | None = None,
    witnesses: Sequence[Witness] = (),
    watch: Watch | None = None,
    compare: Callable[[], None] = lambda: None,
    **sides: Series,
) -> tuple[Findings, Settled | None]:
    prepared: Any = SimpleNamespace(
        result=Trials(series=sides, watch=watch or Watch([]), num_rounds=48, seconds=0.2),
        inspection=SimpleNamespace(compare=compare, witnesses=list(witnesses)),
        arguments=SimpleNamespace(values=[X.to("meta")]),
        doubtful=None,
    )
    seen = Rounds()
    seen.first_call_seconds = 0.25
    match: Any = SimpleNamespace(
        seen=seen,
        contestant=SimpleNamespace(construction_seconds=0.5),
        reference=SimpleNamespace(expect=doubled),
        conduct=SimpleNamespace(variants=("native",), reduction_length=1),
        delivery=Delivery(names=[], needed=False),
    )
    figures.finish(timed_series.bench(reference_times), prepared, match, findings, 1.0)
    assert prepared.inspection is None, "what it held is not kept"
    return findings, prepared.doubtful


def doubled(_: str, inputs: list[torch.Tensor], *__: object) -> Expected:
    """Of a reference that returns twice its input, the judge's own copy of it."""
    return Expected(2 * inputs[0], {"native": [2 * inputs[0]]}, {}, mutates_inputs=False, work=[])


def witness(output: torch.Tensor, **sampled: torch.Tensor) -> Witness:
    """A whole call, of which a few places had been seen when the clock stopped."""
    places = torch.tensor([3, 70, 200])
    return Witness(inputs=[X], outputs=[output], sampled=[(0, places, sampled.get("values", output[places]))])


@pytest.fixture
def findings() -> Findings:
    return Findings(Problem(name="p", source="pass"), Candidate(source="pass"), protocol("standard"), device="cuda:0")


def test_times_are_in_milliseconds_and_of_the_judges_clock(findings: Findings) -> None:
    mine = series(20.0, spans_us=[30.0, 10.0, 15.0])
    finished(findings, contestant=mine, reference=series(50.0, is_trusted=True))
    timing = findings.timing
    assert timing.source == "measured" and timing.median_ms == timing.judge_ms == pytest.approx(0.02)
    assert timing.confidence_interval_ms == pytest.approx((0.02, 0.02))
    assert timing.device_ms == pytest.approx(0.015), "the middle one of what it says itself"
    assert (timing.first_call_ms, timing.construction_ms) == (250.0, 500.0)
    assert timing.num_trials == 12 * (1 + 4 + 8 + 16)
    assert findings.reference_timing.median_ms == pytest.approx(0.05)
    assert findings.speedup == findings.naive_speedup == pytest.approx(2.5)
    assert findings.silenced_us is None and not findings.notes


SIDES = {"contestant": series(20.0), "reference": series(50.0)}


def test_whole_outputs_of_timed_calls_are_right_and_as_they_were_when_the_clock_stopped(findings: Findings) -> None:
    finished(findings, witnesses=[witness(2 * X), witness(2 * X)], **SIDES)
    places = torch.tensor([3, 70, 200])
    unlike = 2 * X
    unlike[100] += 1.0
    told = {
        "wrong_when_timed": [witness(2 * X), witness(unlike)],
        "deferred_work": [witness(2 * X, values=3 * X[places]), witness(2 * X)],
    }
    for name, witnesses in told.items():
        with pytest.raises(Ruling) as caught:
            finished(findings, witnesses=witnesses, **SIDES)
        assert caught.value.status is Status.EXPLOIT
        assert [one.name for one in caught.value.exploits] == [name]


def test_what_is_no_number_may_stay_so(findings: Findings) -> None:
    x = X.clone()
    x[3] = math.nan
    finished(findings, witnesses=[replace(witness(2 * x), inputs=[x])], **SIDES)


def test_what_was_sampled_is_compared_before_anything_is_credited(findings: Findings) -> None:
    def compare() -> None:
        raise exploit("wrong_when_timed", "its outputs were right in the rounds and wrong in timed calls")

    with pytest.raises(Ruling, match="wrong in timed calls"):
        finished(findings, compare=compare, **SIDES)
    assert findings.timing.median_ms is None


def test_a_device_that_was_throttled_is_told_of(findings: Findings) -> None:
    reading = Reading(sm_mhz=1200, memory_mhz=2600, reasons=("software power cap",))
    finished(findings, watch=Watch([replace(reading, sm_mhz=1500, reasons=()), reading]), **SIDES)
    assert findings.notes == ["the device was throttled while it was timed: software power cap"]
    assert findings.timing.clock_mhz == (1200, 1500)


def test_without_one_of_the_two_nothing_is_measured(findings: Findings) -> None:
    left_out = Series(windows=[replace(one, undisturbed=False) for one in series(20.0).windows])
    for mine, theirs in ((left_out, series(50.0)), (series(20.0), left_out)):
        with pytest.raises(Ruling, match="disturbed during all windows") as caught:
            finished(findings, contestant=mine, reference=theirs)
        assert caught.value.status is Status.INFRASTRUCTURE_ERROR
        assert not findings.timing.median_ms


def test_a_reference_of_no_time_is_our_fault(findings: Findings) -> None:
    with pytest.raises(Ruling, match="too busy for times") as caught:
        finished(findings, contestant=series(20.0), reference=series(-1.0))
    assert caught.value.status is Status.INFRASTRUCTURE_ERROR


@pytest.mark.parametrize("failed", [0, 1])
def test_what_a_call_takes_in_silence_is_the_twins(findings: Findings, failed: int) -> None:
    finished(findings, contestant=series(20.0), reference=series(50.0), twin=series(5.0, failed=failed))
    assert findings.silenced_us == (None if failed else (pytest.approx(5.0), pytest.approx(0.0, abs=1e-6)))


def test_who_works_before_the_clock_is_convicted_for_much_and_pays_for_some(findings: Findings) -> None:
    reference = series(50.0, is_trusted=True)
    finished(findings, contestant=series(20.0, prime_us=110.0 + 100.0), reference=reference)
    assert any(note.startswith("paid for ") for note in findings.notes)
    assert findings.timing.median_ms is not None and findings.timing.median_ms > 0.021
    with pytest.raises(Ruling, match="before each timed window it worked for"):
        finished(findings, contestant=series(20.0, prime_us=110.0 + 400.0), reference=reference)


@pytest.mark.parametrize(("num_bytes", "is_possible"), [(L2_BYTES + 90_000_000, True), (L2_BYTES + 102_000_000, False)])
def test_nobody_is_faster_than_the_memory(findings: Findings, num_bytes: int, is_possible: bool) -> None:
    """At 5 % more than its peak: 100.8 MB in 20 us, beside what the cache may hold."""
    findings.compulsory_bytes = num_bytes
    if not is_possible:
        with pytest.raises(Ruling, match="below_physical_limit"):
            finished(findings, contestant=series(20.0), reference=series(50.0))
        return
    finished(findings, contestant=series(20.0), reference=series(50.0))
    assert findings.roofline is not None
    limit_ms = 1000 * 90_000_000 / (1.05 * BANDWIDTH)
    assert findings.roofline.limit_ms == pytest.approx(limit_ms)
    assert findings.roofline.fraction == pytest.approx(limit_ms / 0.02)
    assert findings.roofline.compulsory_bytes == num_bytes


def test_what_fits_into_the_cache_has_no_limit_and_what_nobody_knows_has_no_roofline(findings: Findings) -> None:
    findings.compulsory_bytes = L2_BYTES - 1
    finished(findings, contestant=series(0.5), reference=series(50.0))
    assert findings.roofline is not None and findings.roofline.fraction == 0.0
    findings.roofline, findings.compulsory_bytes = None, 0
    finished(findings, contestant=series(0.5), reference=series(50.0))
    assert findings.roofline is None


def test_calls_that_were_computed_at_once_are_charged_as_single_ones(findings: Findings) -> None:
    batched = series(2.0)
    batched.windows[:] = [replace(one, wall_us=60.0 + 40.0 + 2.0 * one.length) for one in batched.windows]
    finished(findings, contestant=batched, reference=series(50.0, is_trusted=True))
    assert findings.timing.median_ms == pytest.approx(0.042, rel=0.05)
    assert any(note.startswith("charged as single calls: a call alone takes 42.0 us") for note in findings.notes)


def test_a_figure_that_scatters_counts_by_its_worse_end_and_says_so_once(findings: Findings) -> None:
    def scattered(per_call_us: float) -> Series:
        one = series(per_call_us)
        one.windows[:] = [
            replace(w, wall_us=w.wall_us + (0.0, 60.0, 10.0, 150.0, 400.0)[number % 5])
            for number, w in enumerate(one.windows)
        ]
        return one

    finished(findings, contestant=scattered(6.0), reference=series(13.0))
    assert findings.notes == [figures.SCATTERED]
    findings.notes.clear()
    finished(findings, contestant=series(6.0), reference=scattered(13.0))
    assert findings.notes == [figures.SCATTERED]
    finished(findings, contestant=scattered(6.0), reference=scattered(13.0))
    assert findings.evaluation(None).notes == (figures.SCATTERED,), "said once"
    mine, theirs = findings.timing, findings.reference_timing
    assert mine.confidence_interval_ms is not None and theirs.confidence_interval_ms is not None
    assert mine.median_ms == mine.confidence_interval_ms[1] or mine.median_ms == pytest.approx(
        findings.full_fit.mean_us / 1000
    )
    assert theirs.median_ms == theirs.confidence_interval_ms[0] < 0.011


def test_a_reference_time_that_nobody_knows_is_left_to_be_confirmed(findings: Findings) -> None:
    known = ReferenceTimes()
    _, doubtful = finished(findings, reference_times=known, contestant=series(20.0), reference=series(50.0))
    assert doubtful is not None and doubtful.is_doubtful and doubtful.per_call_us == pytest.approx(50.0)
    assert findings.reference_timing.median_ms is None and findings.speedup is None
