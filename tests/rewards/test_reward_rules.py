"""What holds for every reward: our faults are masked, failures are alike, noise is not paid, success is worth more."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from verdicts import FAILURES, OURS, failed, measured, modeled, passed

from kerneldojo.rewards import (
    DrKernelConfig,
    KevinConfig,
    NaiveConfig,
    Reward,
    TritonRLConfig,
    credited_speedup,
    parse,
    reward,
    speedup_interval,
)
from kerneldojo.schema import Status, Timing

CHECKED: list[Any] = [DrKernelConfig(), DrKernelConfig(coverage=False), KevinConfig(), TritonRLConfig()]
EVERY: list[Any] = [*CHECKED, NaiveConfig(), NaiveConfig(base=KevinConfig())]


@pytest.mark.parametrize("config", EVERY, ids=str)
@pytest.mark.parametrize("status", OURS)
def test_our_own_faults_are_masked_and_never_zero(config: Any, status: Status):
    result = reward(failed(status, message="the disk is full"), config)
    assert not result.valid
    assert result.value is None
    assert result.reason == f"{status}: the disk is full"


@pytest.mark.parametrize("config", CHECKED, ids=str)
def test_no_way_of_failing_is_better_than_another(config: Any):
    results = {reward(failed(status), config).model_dump_json() for status in FAILURES}
    assert len(results) == 1
    result = reward(failed(Status.EXPLOIT), config)
    assert result.valid
    assert result.value == 0


def test_every_status_is_either_a_success_a_failure_or_ours():
    assert {Status.PASSED, *FAILURES, *OURS} == set(Status)


@pytest.mark.parametrize("config", CHECKED, ids=str)
@settings(deadline=None)
@given(speedup=st.floats(1e-3, 1e3), coverage=st.floats(0, 1))
def test_success_is_worth_more_than_failure_however_slow(config: Any, speedup: float, coverage: float):
    result = reward(passed(speedup, coverage), config)
    assert result.value is not None
    assert result.value > 0
    assert result.value == pytest.approx(sum(result.parts.values()))


@pytest.mark.parametrize("config", CHECKED, ids=str)
@settings(deadline=None)
@given(speeds=st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)))
def test_faster_is_never_worth_less(config: Any, speeds: tuple[float, float]):
    slow, fast = (reward(passed(speed, 0.5), config).value for speed in sorted(speeds))
    assert slow is not None
    assert fast is not None
    assert slow <= fast


def test_a_measured_speedup_whose_interval_contains_1_counts_as_1():
    noisy = passed(1.1, timing=measured(0.8, 1.0, 1.2), reference_timing=measured(1.0, 1.1, 1.2))
    clear = passed(1.1, timing=measured(0.99, 1.0, 1.01), reference_timing=measured(1.09, 1.1, 1.11))
    slower = passed(0.9, timing=measured(0.99, 1.0, 1.01), reference_timing=measured(0.89, 0.9, 0.91))
    assert (credited_speedup(noisy), credited_speedup(clear), credited_speedup(slower)) == (1.0, 1.1, 0.9)
    assert reward(noisy, KevinConfig()).value == pytest.approx(1.3)


def test_the_interval_of_the_ratio_adds_both_sides_in_quadrature():
    evaluation = passed(2.0, timing=measured(1 / 1.03, 1.0, 1.04), reference_timing=measured(2 / 1.03, 2.0, 2 * 1.04))
    interval = speedup_interval(evaluation)
    assert interval is not None
    low, high = interval
    assert 2 / 1.0513 < low < 2 / 1.04  # wider than either side's 4 %, narrower than the product of 1.03 and 1.04
    assert low * high == pytest.approx(4.0)  # as far down (fast reference, slow kernel) as up


def test_modelled_times_are_exact():
    assert credited_speedup(passed(1.0001)) == 1.0001
    assert credited_speedup(passed(0.9999)) == 0.9999


def test_a_gain_that_nobody_can_vouch_for_is_not_paid_and_a_loss_is_not_forgiven():
    bare = Timing(source="measured", median_ms=1.0)
    assert credited_speedup(passed(2.0, timing=bare, reference_timing=measured(1.9, 2.0, 2.1))) == 1.0
    assert credited_speedup(passed(0.5, timing=bare, reference_timing=bare)) == 0.5
    # One side modelled and the other measured is no comparison that could vouch for a gain either.
    assert credited_speedup(passed(2.0, timing=modeled(1.0), reference_timing=bare)) == 1.0


@pytest.mark.parametrize("speedup", [float("inf"), float("nan"), 0.0, -1.0])
def test_figures_that_are_no_speedup_are_not_paid(speedup: float):
    evaluation = passed(1.0).model_copy(update={"speedup": speedup})
    assert credited_speedup(evaluation) is None
    assert reward(evaluation, KevinConfig()).value == 0.3


def test_without_a_clock_only_correctness_is_paid():
    untimed = passed(1.0).model_copy(update={"speedup": None, "timing": Timing(), "reference_timing": Timing()})
    assert reward(untimed, DrKernelConfig()).parts == {"correct": 1.0}
    assert reward(untimed, KevinConfig()).value == 0.3
    assert reward(untimed, TritonRLConfig()).plan == 0.0
    assert reward(untimed, TritonRLConfig()).code == 1.0


def test_a_reward_cannot_be_masked_and_have_a_value():
    with pytest.raises(ValidationError, match="exactly if it is valid"):
        Reward(value=0.0, valid=False)
    with pytest.raises(ValidationError, match="exactly if it is valid"):
        Reward(value=None)
    with pytest.raises(ValidationError, match="come together"):
        Reward(value=1.0, plan=1.0)


def test_rewards_go_by_name_and_bad_settings_are_named():
    assert parse("kevin") == KevinConfig()
    assert parse({"type": "dr_kernel", "coverage": False}) == DrKernelConfig(coverage=False)
    with pytest.raises(ValidationError, match="speed_cap"):
        parse({"type": "dr_kernel", "speed_cap": 2})
    with pytest.raises(ValidationError, match="type"):
        parse("kernelgym")


@pytest.mark.parametrize("config", EVERY, ids=str)
def test_results_and_configurations_survive_a_file(config: Any):
    result = reward(passed(1.5, 0.5), config)
    assert Reward.model_validate_json(result.model_dump_json()) == result
    assert type(config).model_validate_json(config.model_dump_json()) == config
