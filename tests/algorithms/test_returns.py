"""Return-to-go on numbers that can be checked in the head, and against the definition."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kerneldojo.algorithms import ReturnConfig, Turns, return_to_go


def ragged(lengths: list[int]) -> Turns:
    return Turns.of(
        [0] * sum(lengths),
        [i for i, n in enumerate(lengths) for _ in range(n)],
        [t for n in lengths for t in range(n)],
    )


def test_dr_kernels_trajectory_without_discount():
    # LayerNorm and L1 norm, 1.04x -> 1.21x -> 1.45x: rewards by Eq. 1
    returns = return_to_go(torch.tensor([2.04, 2.21, 2.45]), ragged([3]), ReturnConfig())
    torch.testing.assert_close(returns, torch.tensor([6.70, 4.66, 2.45]))


def test_kevins_trajectory_with_his_discount():
    # LayerNorm 0.6x -> 4.27x -> 9.61x: S = 0.3 + speedup, gamma = 0.4
    scores = torch.tensor([0.9, 4.57, 9.91])
    returns = return_to_go(scores, ragged([3]), ReturnConfig(discount=0.4))
    torch.testing.assert_close(returns, torch.tensor([0.9 + 0.4 * 4.57 + 0.16 * 9.91, 4.57 + 0.4 * 9.91, 9.91]))
    best = return_to_go(scores, ragged([3]), ReturnConfig(kind="max", discount=0.4))
    torch.testing.assert_close(best, torch.tensor([0.4 * 4.57, 4.57, 9.91]))


def test_maximum_is_over_later_turns_only_and_negative_rewards_stay_negative():
    config = ReturnConfig(kind="max", discount=0.5)
    returns = return_to_go(torch.tensor([-1.0, -4.0, 3.0, 1.0]), ragged([2, 2]), config)
    assert returns.tolist() == [-1.0, -4.0, 3.0, 1.0]


def test_a_fault_makes_earlier_returns_unknown_and_leaves_other_trajectories_alone():
    rewards = torch.tensor([1.0, float("nan"), 2.0, 5.0])
    returns = return_to_go(rewards, ragged([3, 1]), ReturnConfig())
    assert returns.isnan().tolist() == [True, True, False, False]
    assert returns[2:].tolist() == [2.0, 5.0]


@pytest.mark.parametrize("kind", ["sum", "max"])
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_definition_holds_for_ragged_trajectories_in_any_order(kind: str, data: st.DataObject):
    lengths = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    discount = data.draw(st.sampled_from([0.0, 0.4, 1.0]))
    turns = ragged(lengths)
    values = st.integers(-3, 3).map(float)
    rewards = torch.tensor(data.draw(st.lists(values, min_size=len(turns), max_size=len(turns))), dtype=torch.float64)
    order = torch.tensor(data.draw(st.permutations(range(len(turns)))))
    shuffled = Turns(turns.prompt[order], turns.trajectory[order], turns.turn[order], turns.valid[order])
    config = ReturnConfig(kind=kind, discount=discount)  # pyright: ignore[reportArgumentType]
    returns = return_to_go(rewards[order], shuffled, config)
    combine = sum if kind == "sum" else max
    for place, row in enumerate(order.tolist()):
        trajectory, turn = int(turns.trajectory[row]), int(turns.turn[row])
        start = row - turn
        later = [discount**k * float(rewards[row + k]) for k in range(start + lengths[trajectory] - row)]
        assert float(returns[place]) == pytest.approx(combine(later))


def test_no_samples_have_no_returns():
    assert return_to_go(torch.zeros(0), ragged([]), ReturnConfig()).shape == (0,)
