"""A profile that is taken while others use the device is believed only where nothing came between."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from kerneldojo.devices.cuda.fits import Fit
from kerneldojo.judging import profile
from kerneldojo.judging.protocol import Protocol
from kerneldojo.judging.verdict import Findings
from kerneldojo.schema import Candidate, Problem, Timing


def findings(per_call_us: float | None) -> Findings:
    found = Findings(Problem(name="x", source="x = 1"), Candidate(source="y = 2", language="triton"), Protocol(), "cpu")
    if per_call_us is not None:
        found.full_fit = Fit(per_call_us, (per_call_us, per_call_us), 40.0, None, math.inf, 12, 100)
    return found


def answer(*device_us: float, even: Any = True) -> dict[str, Any]:
    rows = [{"name": f"kernel {us}", "own": True, "device_us": us, "launches": 1.0} for us in device_us]
    return {"kernels": rows, "even": even}


def taken(answers: list[dict[str, Any]], per_call_us: float | None = 36.0) -> tuple[profile.Rows | None, int]:
    """What is taken, and how many answers were asked for."""
    left = list(answers)
    match: Any = SimpleNamespace(contestant=SimpleNamespace(ask=lambda *_, **__: left.pop(0)))
    found = findings(per_call_us)
    return profile.take_beside(match, found, found.full_fit), len(answers) - len(left)


def test_a_profile_that_fits_the_clock_is_taken_at_once() -> None:
    rows, num = taken([answer(30.0, 4.0)])
    assert rows is not None
    assert [row["device_us"] for row in rows] == [30.0, 4.0]
    assert num == 1


@pytest.mark.parametrize("disturbed", [answer(34.0, even=False), answer(34.0, even="yes"), answer(34.0, 6.0)])
def test_a_disturbed_one_is_taken_again_and_then_needs_a_window(disturbed: dict[str, Any]) -> None:
    rows, num = taken([disturbed, answer(34.0)])
    assert rows is not None
    assert num == 2
    assert taken([disturbed] * 9) == (None, profile.NUM_BESIDE)


def test_without_records_there_is_nothing_to_try_again() -> None:
    assert taken([{"kernels": None}]) == ([], 1)


def test_without_the_judges_own_time_there_is_nothing_to_compare_with() -> None:
    assert taken([answer(34.0)], per_call_us=None) == (None, 0)


@pytest.mark.parametrize(("kernels_us", "is_bound"), [((13.7,), True), ((9.0, 4.7), True), ((33.6,), False)])
def test_launches_bind_where_kernels_take_less_than_calls(kernels_us: tuple[float, ...], is_bound: bool) -> None:
    """The events around a call say nothing about that: on an idle device they saw 41 us of a kernel that took 13.7."""
    found = findings(35.0)
    found.timing = Timing(source="measured", median_ms=0.028 if is_bound else 0.035, device_ms=0.041)
    profile.fill(answer(*kernels_us)["kernels"], found)
    assert found.timing.host_bound is is_bound


def test_without_a_profile_nobody_knows_whether_launches_bind() -> None:
    found = findings(35.0)
    found.timing = Timing(source="measured", median_ms=0.035, device_ms=0.041)
    profile.fill([], found)
    assert found.timing.host_bound is None


def test_coverage_is_cut_by_what_a_call_takes_without_own_kernels_beyond_its_launches() -> None:
    rows = answer(30.0)["kernels"]
    for silenced_us, slowness, coverage in (
        (None, 1.0, 1.0),
        ((30.0, 0.0), 1.0, 1.0),  # One launch, and the call itself.
        ((48.0, 0.0), 1.0, 0.7),
        ((48.0, 0.0), 2.0, 1.0),
        ((48.0, 6.0), 1.0, 0.8),
        ((105.0, 0.0), 99.0, 0.5),
    ):
        found = findings(60.0)
        found.slowness = slowness
        assert profile.allowed(rows, found, silenced_us) == pytest.approx(coverage)


@pytest.mark.parametrize(("per_call_us", "num"), [(None, 10), (36.0, 10), (7000.0, 7), (134_000.0, 3)])
def test_of_slow_calls_few_are_profiled(per_call_us: float | None, num: int) -> None:
    """Each launch costs the host tens of microseconds then, and a recurrent network has thousands a call."""
    asked: list[int] = []
    found = findings(per_call_us)
    found.timed_sets = [{} for _ in range(128)]
    match: Any = SimpleNamespace(contestant=SimpleNamespace(ask=lambda *_, sets, **__: asked.append(len(sets)) or {}))
    assert profile.take(match, found, found.full_fit) == []
    assert asked == [num]
