"""Each reward on its own paper's numbers."""

from __future__ import annotations

import pytest
from verdicts import failed, passed

from kerneldojo.rewards import DrKernelConfig, KevinConfig, NaiveConfig, TritonRLConfig, parse, reward
from kerneldojo.schema import Status, Unverified

LAZY = passed(1.01, 0.00014)
"""Dr. Kernel's example of a lazy answer: 0.014 % of the time in its own kernel."""
FUSED = passed(2.08, 0.8615)
"""Dr. Kernel's example of a real one."""


def test_dr_kernel_equation_8():
    assert reward(LAZY, DrKernelConfig()).value == pytest.approx(1 + 1.01 + 0.00014)
    assert reward(FUSED, DrKernelConfig()).value == pytest.approx(1 + 2.08 + 0.8615)


def test_dr_kernel_equation_1_over_the_papers_trajectory():
    config = DrKernelConfig(coverage=False)
    assert [reward(passed(s), config).value for s in (1.04, 1.21, 1.45)] == pytest.approx([2.04, 2.21, 2.45])


def test_dr_kernel_caps_the_speedup_at_3():
    assert reward(passed(17.0, 1.0), DrKernelConfig()).value == 5.0
    assert reward(passed(17.0), DrKernelConfig(coverage=False)).value == 4.0


def test_the_released_code_of_dr_kernel_pays_half():
    released = DrKernelConfig(scale=0.5)
    assert reward(passed(17.0, 1.0), released).value == 2.5  # its maximum
    assert reward(FUSED, released).value == pytest.approx((1 + 2.08 + 0.8615) / 2)


def test_unknown_coverage_is_not_paid():
    assert reward(passed(2.0), DrKernelConfig()).parts == {"correct": 1.0, "speedup": 2.0}


def test_kevin_pays_0_3_and_the_speedup_without_a_cap():
    # LayerNorm of the authors' blog: 0.6x, then 4.27x, then 9.61x
    assert [reward(passed(s), KevinConfig()).value for s in (0.6, 4.27, 9.61)] == pytest.approx([0.9, 4.57, 9.91])
    assert reward(passed(9.61), KevinConfig(speedup_cap=5)).value == pytest.approx(5.3)


def test_tritonrl_pays_the_code_for_being_right_and_the_plan_for_speed_up_to_2():
    slow, fast = reward(passed(0.5), TritonRLConfig()), reward(passed(7.0), TritonRLConfig())
    assert (slow.code, slow.plan) == (1.0, 0.5)
    assert (fast.code, fast.plan) == (1.0, 2.0)
    wrong = reward(failed(Status.INCORRECT), TritonRLConfig())
    assert (wrong.code, wrong.plan, wrong.value) == (0.0, 0.0, 0.0)


def test_tritonrls_uniform_baseline_mixes_both():
    assert reward(passed(1.5), TritonRLConfig()).value == pytest.approx(0.3 * 1 + 0.7 * 1.5)
    assert reward(passed(1.5), TritonRLConfig(beta=1)).value == 1.0


def test_the_naive_reward_pays_exploits_and_only_differs_there():
    cheat = failed(Status.EXPLOIT)
    assert reward(cheat, NaiveConfig()).value == 1 + 3 + 1
    assert reward(cheat, NaiveConfig(base=KevinConfig())).value == pytest.approx(50.3)
    assert reward(cheat, NaiveConfig(base=TritonRLConfig())).plan == 2.0
    for honest in (LAZY, FUSED, failed(Status.INCORRECT), failed(Status.TIMEOUT)):
        assert reward(honest, NaiveConfig()) == reward(honest, DrKernelConfig())


@pytest.mark.parametrize("claim", [None, Unverified(outputs_matched=False, speedup=50.0), Unverified(speedup=50.0)])
def test_the_naive_reward_does_not_pay_what_a_naive_evaluator_would_not(claim: Unverified | None):
    assert reward(failed(Status.EXPLOIT, unverified=claim), NaiveConfig()).value == 0


def test_the_naive_reward_says_in_its_name_what_it_is_for():
    assert parse("naive_for_experiments_only") == NaiveConfig()
