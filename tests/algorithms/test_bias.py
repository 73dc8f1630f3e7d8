"""Which estimators are unbiased, by exact enumeration: no sampling, no tolerance beyond rounding."""

from __future__ import annotations

import pytest
import torch
from small_bandit import Estimator, expected_gradient, true_gradient
from torch import Tensor

from kerneldojo.algorithms import Groups, GRPOConfig, KevinConfig, RLOOConfig, TRLOOConfig, Turns, advantages

FIRST, SECOND = slice(0, 3), slice(3, 7)  # parameters of turn 0, where N is fixed, and of turn 1, where it varies


def trloo(returns: Tensor, turns: Turns) -> Tensor:
    return advantages(returns, turns, TRLOOConfig(alone="return"))


def grpo(returns: Tensor, turns: Turns) -> Tensor:
    return advantages(returns, turns, GRPOConfig(alone="return"))


def kevin(returns: Tensor, turns: Turns) -> Tensor:
    return advantages(returns, turns, KevinConfig(std=False))


def rloo(returns: Tensor, turns: Turns) -> Tensor:
    return advantages(returns, turns, RLOOConfig())


def cosine(a: Tensor, b: Tensor) -> float:
    return float(torch.cosine_similarity(a, b, dim=0))


@pytest.mark.parametrize("num_rollouts", [2, 3, 4])
def test_trloo_has_no_bias_also_where_the_number_of_turns_varies(num_rollouts: int):
    torch.testing.assert_close(expected_gradient(trloo, num_rollouts), true_gradient())


@pytest.mark.parametrize("num_rollouts", [2, 3, 4])
def test_including_oneself_scales_the_gradient_by_1_minus_1_over_n(num_rollouts: int):
    gradient = expected_gradient(grpo, num_rollouts)
    torch.testing.assert_close(gradient[FIRST], (1 - 1 / num_rollouts) * true_gradient()[FIRST])


def test_including_oneself_changes_the_direction_where_n_varies():
    gradient = expected_gradient(grpo, 3)
    shrunk = gradient / true_gradient()
    assert float(shrunk[FIRST].std()) < 1e-12
    # Turn 1 is reached by one to three of the three rollouts, so it shrinks by another factor than turn 0.
    assert float((shrunk[SECOND] - shrunk[0]).abs().min()) > 0.01
    assert cosine(gradient, true_gradient()) < 1 - 1e-5
    assert cosine(expected_gradient(trloo, 3), true_gradient()) == pytest.approx(1, abs=1e-12)


def test_prompts_with_unequal_numbers_of_rollouts_pull_grpo_aside():
    """Two prompts that want different things, one with 2 rollouts left and one with 4."""
    other = (0.2, 1.0, 3.0)
    truth = true_gradient() + true_gradient(other)

    def both(estimator: Estimator) -> Tensor:
        return expected_gradient(estimator, 2) + expected_gradient(estimator, 4, other)

    torch.testing.assert_close(both(trloo), truth)
    halves = true_gradient()[FIRST] / 2 + true_gradient(other)[FIRST] * 3 / 4
    torch.testing.assert_close(both(grpo)[FIRST], halves)
    assert cosine(both(grpo), truth) < 0.99


def test_rloo_over_whole_trajectories_has_no_bias():
    torch.testing.assert_close(expected_gradient(rloo, 3), true_gradient())


def test_a_lone_member_without_advantage_is_a_lost_gradient():
    """The price of the default for groups of one: right on average only for those that were not alone."""
    default = expected_gradient(lambda returns, turns: advantages(returns, turns, TRLOOConfig()), 2)
    torch.testing.assert_close(default[FIRST], true_gradient()[FIRST])
    assert (default[SECOND].abs() < true_gradient()[SECOND].abs()).all()


def test_kevins_pool_is_biased_by_the_trajectorys_own_other_turns():
    truth, gradient = true_gradient(), expected_gradient(kevin, 3)
    # Not a matter of scale: no factor repairs it, already at turn 0 where N does not vary.
    best = float((gradient[FIRST] @ truth[FIRST]) / (truth[FIRST] @ truth[FIRST]))
    assert float((gradient[FIRST] - best * truth[FIRST]).norm() / truth[FIRST].norm()) > 0.03
    assert cosine(gradient, truth) < 0.999


def test_the_pool_without_any_turn_of_the_own_trajectory_is_not_biased():
    """The control for the test above: it is the own turns that do it, not the pooling."""

    def pool_of_the_others(returns: Tensor, turns: Turns) -> Tensor:
        pool = Groups.by(turns.prompt, members=turns.valid)
        own = Groups.by(turns.trajectory, members=turns.valid)
        others = (pool.total(returns) - own.total(returns)) / (pool.size() - own.size())
        return returns - others

    torch.testing.assert_close(expected_gradient(pool_of_the_others, 3), true_gradient())


def test_centring_each_reward_and_summing_over_turns_is_biased():
    """The construction that `trloo` warns of, so that nobody simplifies it into that."""

    def summed(returns: Tensor, turns: Turns) -> Tensor:
        later = torch.zeros_like(returns)
        for row in range(len(returns)):
            follower = (turns.trajectory == turns.trajectory[row]) & (turns.turn == turns.turn[row] + 1)
            later[row] = returns[follower].sum()
        rewards = returns - later
        centred = advantages(rewards, turns, TRLOOConfig(alone="return"))
        total = centred.clone()
        for row in range(len(returns)):
            ahead = (turns.trajectory == turns.trajectory[row]) & (turns.turn > turns.turn[row])
            total[row] += centred[ahead].sum()
        return total

    gradient = expected_gradient(summed, 3)
    assert float((gradient - true_gradient()).norm() / true_gradient().norm()) > 0.1
