"""The algebra of advantages, over arbitrary ragged groups."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kerneldojo.algorithms import (
    AdvantageConfig,
    Groups,
    GRPOConfig,
    KevinConfig,
    RLOOConfig,
    TRLOOConfig,
    Turns,
    advantages,
)

ALL: list[Any] = [
    TRLOOConfig(),
    GRPOConfig(),
    GRPOConfig(std=True),
    RLOOConfig(),
    KevinConfig(),
    KevinConfig(std=False),
]
CENTRED: list[Any] = [GRPOConfig(), GRPOConfig(std=True), KevinConfig(), KevinConfig(std=False), TRLOOConfig()]


@st.composite
def batches(draw: st.DrawFn) -> tuple[Turns, Tensor]:
    """Trajectories of 1 to 3 turns for 1 to 3 prompts, some of them faulty, rows shuffled, with their returns."""
    rows: list[tuple[int, int, int, bool]] = []
    trajectory = 0
    for prompt in range(draw(st.integers(1, 3))):
        for _ in range(draw(st.integers(1, 4))):
            valid = draw(st.booleans()) or draw(st.booleans())
            rows += [(prompt, trajectory, turn, valid) for turn in range(draw(st.integers(1, 3)))]
            trajectory += 1
    rows = draw(st.permutations(rows))
    prompts, trajectories, turn, valid = (list(column) for column in zip(*rows, strict=True))
    returns = draw(st.lists(st.integers(-8, 8), min_size=len(rows), max_size=len(rows)))
    return Turns.of(prompts, trajectories, turn, valid), torch.tensor(returns, dtype=torch.float64)


def groups_of(turns: Turns, config: AdvantageConfig) -> Groups:
    if isinstance(config, KevinConfig):
        return Groups.by(turns.prompt, members=turns.valid)
    return Groups.by(turns.prompt, turns.turn, members=turns.valid)


@pytest.mark.parametrize("config", ALL, ids=str)
@settings(deadline=None, max_examples=50)
@given(batch=batches(), shift=st.integers(-5, 5))
def test_adding_a_constant_to_a_prompts_returns_changes_nothing(config: Any, batch: Any, shift: int):
    turns, returns = batch
    moved = returns + shift * (turns.prompt + 1)
    torch.testing.assert_close(advantages(moved, turns, config), advantages(returns, turns, config))


@pytest.mark.parametrize("config", ALL, ids=str)
@settings(deadline=None, max_examples=50)
@given(batch=batches(), data=st.data())
def test_the_order_of_rows_does_not_matter(config: Any, batch: Any, data: st.DataObject):
    turns, returns = batch
    order = torch.tensor(data.draw(st.permutations(range(len(turns)))))
    shuffled = Turns(turns.prompt[order], turns.trajectory[order], turns.turn[order], turns.valid[order])
    expected = advantages(returns, turns, config)[order]
    torch.testing.assert_close(advantages(returns[order], shuffled, config), expected)


@pytest.mark.parametrize("config", CENTRED, ids=str)
@settings(deadline=None, max_examples=50)
@given(batch=batches())
def test_advantages_of_a_group_sum_to_zero(config: Any, batch: Any):
    turns, returns = batch
    sums = groups_of(turns, config).total(advantages(returns, turns, config))
    torch.testing.assert_close(sums, torch.zeros_like(sums), atol=1e-6, rtol=0)


@settings(deadline=None, max_examples=50)
@given(batch=batches())
def test_trloo_is_the_centred_return_times_n_over_n_minus_1(batch: Any):
    turns, returns = batch
    size = groups_of(turns, TRLOOConfig()).size().double()
    factor = torch.where(size > 1, size / (size - 1), 0.0)
    expected = factor * advantages(returns, turns, GRPOConfig())
    torch.testing.assert_close(advantages(returns, turns, TRLOOConfig()), expected)


@pytest.mark.parametrize("config", ALL, ids=str)
@settings(deadline=None, max_examples=50)
@given(batch=batches())
def test_masked_turns_neither_get_nor_give(config: Any, batch: Any):
    turns, returns = batch
    poisoned = torch.where(turns.valid, returns, float("nan"))
    result = advantages(poisoned, turns, config)
    assert result.isfinite().all()
    assert not result[~turns.valid].any()
    torch.testing.assert_close(result, advantages(returns, turns, config))


@pytest.mark.parametrize("config", [GRPOConfig(std=True), KevinConfig()], ids=str)
@settings(deadline=None, max_examples=50)
@given(batch=batches())
def test_normalised_advantages_do_not_depend_on_the_unit_of_reward(config: Any, batch: Any):
    turns, returns = batch
    torch.testing.assert_close(
        advantages(1000 * returns, turns, config), advantages(returns, turns, config), atol=1e-4, rtol=1e-4
    )


def test_turns_are_compared_with_the_same_turn_of_those_that_got_so_far():
    turns = Turns.of([0] * 5, [0, 0, 1, 1, 2], [0, 1, 0, 1, 0])
    returns = torch.tensor([3.0, 1.0, 6.0, 5.0, 0.0])
    assert advantages(returns, turns, TRLOOConfig()).tolist() == [0.0, -4.0, 4.5, 4.0, -4.5]


def test_a_trajectory_has_one_advantage_in_rloo():
    turns = Turns.of([0] * 5, [0, 0, 1, 1, 2], [0, 1, 0, 1, 0])
    returns = torch.tensor([3.0, 1.0, 6.0, 5.0, 0.0])
    assert advantages(returns, turns, RLOOConfig()).tolist() == [0.0, 0.0, 4.5, 4.5, -4.5]


def test_kevin_pools_all_turns_of_a_task():
    turns = Turns.of([0] * 4, [0, 0, 1, 1], [0, 1, 0, 1])
    returns = torch.tensor([4.0, 2.0, 1.0, 1.0], dtype=torch.float64)
    deviation = torch.tensor([4.0, 2.0, 1.0, 1.0]).std().double()
    expected = (returns - 2.0) / deviation
    torch.testing.assert_close(advantages(returns, turns, KevinConfig()), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("config", ALL, ids=str)
def test_a_group_of_one_gets_nothing_or_its_return(config: Any):
    turns = Turns.of([0, 1], [0, 1], [0, 0])
    returns = torch.tensor([2.0, -3.0])
    assert advantages(returns, turns, config).tolist() == [0.0, 0.0]
    with_return = config.model_copy(update={"alone": "return"})
    assert advantages(returns, turns, with_return).tolist() == [2.0, -3.0]


def test_no_valid_turn_and_no_turn_at_all():
    for config in ALL:
        nobody = Turns.of([0, 0], [0, 1], [0, 0], [False, False])
        assert advantages(torch.tensor([1.0, 2.0]), nobody, config).tolist() == [0.0, 0.0]
        assert advantages(torch.zeros(0), Turns.of([], [], []), config).shape == (0,)
