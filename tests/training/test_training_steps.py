"""What a step's columns are made of, and which groups of it teach nothing."""

from __future__ import annotations

import pytest
import torch

from kerneldojo.algorithms import HRDConfig, LearningConfig, Samples, Turns, prepare
from kerneldojo.training.steps import without_dull_groups

TURNS = Turns.of([0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 2, 2, 3, 3], [0, 1] * 4)
"""Two prompts, two trajectories each, two turns: four groups of two; answers of a plan's token and a code's."""


def columns(rewards: list[float], plan_rewards: list[float] | None = None) -> Samples:
    log_probs = -torch.linspace(0.1, 2.0, 16)
    return Samples(
        turns=TURNS,
        rewards=torch.tensor(rewards, dtype=torch.float64),
        sample=torch.arange(8).repeat_interleave(2),
        log_probs=log_probs,
        is_plan=torch.tensor([True, False] * 8),
        plan_rewards=None if plan_rewards is None else torch.tensor(plan_rewards, dtype=torch.float64),
    )


def config(**told: object) -> LearningConfig:
    return LearningConfig.model_validate({"prs": None, "mrs": None, "returns": {"discount": 0.0}, **told})


def kept(samples: Samples, learning: LearningConfig) -> list[bool]:
    prepared, num_dull = without_dull_groups(prepare(samples, learning), samples, learning)
    assert num_dull == 8 - int(prepared.kept.sum())
    assert ((prepared.weights > 0) == prepared.kept[samples.sample]).all()
    return prepared.kept.tolist()


@pytest.mark.parametrize("advantage", ["trloo", "grpo"])
def test_equal_returns_teach_nothing(advantage: str) -> None:
    rewards = [0.1, 0.7, 0.1, 0.9, 0.3, 0.3, 0.3, 0.3]
    assert kept(columns(rewards), config(advantage={"type": advantage})) == [False, True, False, True] + [False] * 4


def test_plans_that_differ_teach_where_code_does_not() -> None:
    told = config(hrd=HRDConfig(), advantage={"type": "grpo"})
    plans = [1.0, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert kept(columns([1.0] * 8, plans), told) == [True, False, True] + [False] * 5
    assert kept(columns([1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0], [1.0] * 8), told) == [True, False, True] + [False] * 5


def test_turns_that_differ_teach_where_they_are_pooled() -> None:
    rewards = [0.0, 1.0, 0.0, 1.0, 0.5, 0.5, 0.5, 0.5]
    assert kept(columns(rewards), config(advantage={"type": "kevin"})) == [True] * 4 + [False] * 4
    assert kept(columns(rewards), config(advantage={"type": "trloo"})) == [False] * 8


@pytest.mark.parametrize("advantage", ["trloo", "grpo", "kevin"])
def test_rounding_teaches_nothing(advantage: str) -> None:
    many = 7
    samples = Samples(
        turns=Turns.of([0] * many, list(range(many)), [0] * many),
        rewards=torch.full((many,), 0.1 + 0.2, dtype=torch.float64),
        sample=torch.arange(many),
        log_probs=torch.zeros(many),
    )
    learning = config(advantage={"type": advantage})
    assert without_dull_groups(prepare(samples, learning), samples, learning)[1] == many
