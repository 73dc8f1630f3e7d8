"""What was seen becomes one evaluation, which says nothing of a candidate that did not pass but what may be said."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from kerneldojo.episodes import PlayConfig, feedback
from kerneldojo.judging.protocol import VERSION, protocol
from kerneldojo.judging.ruling import Ruling, exploit
from kerneldojo.judging.verdict import SLOW_HOST, Findings
from kerneldojo.policies.teacher.feedback import read_feedback
from kerneldojo.schema import Candidate, Problem, Roofline, Status, Timing


@pytest.fixture
def findings() -> Findings:
    """Of a candidate of which everything is known, and a reference that takes twice as long."""
    found = Findings(Problem(name="p", source="pass"), Candidate(source="pass"), protocol("standard"), device="cuda:0")
    found.outputs_matched, found.max_error, found.coverage = True, 0.25, 0.75
    found.timing, found.reference_timing = (Timing(source="measured", median_ms=ms) for ms in (0.5, 1.0))
    found.naive_speedup = 3.0
    found.roofline = Roofline(limit_ms=0.4, fraction=0.8, bound="memory", compulsory_bytes=1000)
    return found


def test_of_one_that_passed_everything_is_told(findings: Findings) -> None:
    told = findings.evaluation(None)
    assert (told.status, told.correct, told.message) == (
        Status.PASSED,
        True,
        "correct in every round; 2.00x the speed of the reference (measured)",
    )
    assert (told.speedup, told.kernel_ms, told.reference_ms, told.coverage) == (2.0, 0.5, 1.0, 0.75)
    assert (told.max_error, told.roofline, told.exploits, told.unverified) == (0.25, findings.roofline, (), None)
    assert told.protocol is not None and (told.protocol.name, told.protocol.version) == ("standard", VERSION)


@pytest.mark.parametrize(
    ("kernel_ms", "told"), [(0.5, "2.00"), (1.05, "0.95"), (10.0, "0.10"), (11.0, "0.091"), (26_000.0, "0.000038")]
)
def test_who_is_far_slower_is_not_said_to_be_no_times_as_fast(findings: Findings, kernel_ms: float, told: str) -> None:
    findings.timing = Timing(source="measured", median_ms=kernel_ms)
    evaluation = findings.evaluation(None)
    assert evaluation.message == f"correct in every round; {told}x the speed of the reference (measured)"
    read = feedback(evaluation, PlayConfig())
    assert f"It is {told} times as fast as the reference" in read
    request: Any = SimpleNamespace(episode=SimpleNamespace(turns=[SimpleNamespace(feedback=read)]), messages=[])
    understood = read_feedback(request)
    assert understood is not None and understood.speedup == float(told)


def test_of_one_that_did_not_no_figure_counts(findings: Findings) -> None:
    for ruling in (Ruling(Status.INCORRECT, "wrong", max_error=7.0), exploit("stub", "it did nothing")):
        told = findings.evaluation(ruling)
        assert (told.status, told.correct, told.message) == (ruling.status, False, ruling.message)
        assert (told.speedup, told.kernel_ms, told.coverage, told.roofline) == (None, None, None, None)
        assert told.reference_ms == 1.0, "whose it is, is not in doubt"
        assert told.exploits == ruling.exploits


def test_what_an_exploit_would_have_been_credited_with_is_told_as_unverified(findings: Findings) -> None:
    assert findings.evaluation(Ruling(Status.INCORRECT, "wrong")).unverified is None
    told = findings.evaluation(exploit("stub", "it did nothing")).unverified
    assert told is not None and (told.outputs_matched, told.speedup) == (True, 3.0)
    findings.naive_speedup = None
    told = findings.evaluation(exploit("stub", "it did nothing")).unverified
    assert told is not None and told.speedup == 2.0


@pytest.mark.parametrize(
    ("ruling", "before", "told"),
    [
        (None, 0.25, 0.25),
        (Ruling(Status.INCORRECT, "wrong", max_error=7.0), 0.25, 7.0),
        (Ruling(Status.INCORRECT, "wrong", max_error=7.0), None, 7.0),
        (Ruling(Status.INCORRECT, "by so much less", max_error=1.5), 3.0, 3.0),
        (Ruling(Status.INCORRECT, "no number", max_error=math.inf), 0.25, None),
        (Ruling(Status.INCORRECT, "another shape"), 0.25, None),
        (Ruling(Status.TIMEOUT, "late"), 0.25, 0.25),
    ],
)
def test_the_largest_error_is_of_the_rounds_and_of_the_one_that_was_wrong(
    findings: Findings, ruling: Ruling | None, before: float | None, told: float | None
) -> None:
    findings.max_error = before
    assert findings.evaluation(ruling).max_error == told


def test_what_has_no_clock_and_what_is_modelled_say_so(findings: Findings) -> None:
    findings.timing = Timing(source="modeled", median_ms=0.5)
    assert findings.evaluation(None).message.endswith("2.00x the speed of the reference (modelled)")
    findings.timing = Timing()
    told = findings.evaluation(None)
    assert (told.message, told.speedup) == ("correct in every round; this device has no clock", None)
    findings.timing, findings.reference_timing = Timing(source="measured", median_ms=0.5), Timing()
    assert findings.evaluation(None).speedup is None


def test_stages_add_up_as_they_come_and_tell_when_they_begin(findings: Findings) -> None:
    begun: list[str] = []
    findings.on_stage = begun.append
    with findings.stage("timing"):
        pass
    first = findings.stage_seconds["timing"]
    assert 0 <= first < 10
    findings.stage_seconds["timing"] = 100.0
    with pytest.raises(ValueError, match="on the way"), findings.stage("timing"):
        raise ValueError("on the way")
    with findings.stage("profile"):
        pass
    assert 100.0 <= findings.stage_seconds["timing"] < 110
    assert begun == ["timing", "timing", "profile"]
    assert set(findings.evaluation(None).stage_seconds) == {"timing", "profile"}


@pytest.mark.parametrize(
    ("slowness", "host_bound", "is_told"),
    [(SLOW_HOST, True, False), (SLOW_HOST + 0.1, True, True), (9.0, False, False), (9.0, None, False)],
)
def test_a_slow_host_is_told_of_where_launches_bind(
    findings: Findings, slowness: float, host_bound: bool | None, is_told: bool
) -> None:
    findings.timing = Timing(source="measured", median_ms=0.5, host_bound=host_bound)
    for _ in range(2):
        findings.tell_slow_host(slowness)
    assert len(findings.evaluation(None).notes) == is_told, "and once"
