"""What a step makes of its samples and says of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import toy_world

from kerneldojo.algorithms import Turns
from kerneldojo.training.config import RLConfig
from kerneldojo.training.learner import open_learner
from kerneldojo.training.packing import Sample
from kerneldojo.training.parallel import Ranks
from kerneldojo.training.settings import ConfigError
from kerneldojo.training.steps import StepData
from kerneldojo.training.tokens import encode
from kerneldojo.training.updates import Updates

HRD = {"prs": None, "mrs": None, "hrd": {"alpha": 0.0}, "advantage": {"type": "grpo"}}


def updates(config: RLConfig, ranks: Ranks) -> Updates:
    return Updates(config, open_learner(config.model, config.optimizer, ranks))


def step_of(one: Updates, text: str, num_prompts: int = 1) -> StepData:
    """Two answers a prompt, both `text`, of which one earned something."""
    ids, count = tuple(encode(one.learner.tokenizer, text)), 2 * num_prompts
    return StepData(
        samples=[Sample((5, 6, 7), ids)] * count,
        keys=[(number, 0) for number in range(count)],
        turns=Turns.of([number // 2 for number in range(count)], list(range(count)), [0] * count),
        rewards=torch.tensor([1.0, 0.0] * num_prompts, dtype=torch.float64),
        plan_rewards=None,
        rollout_log_probs=torch.zeros(len(ids) * count),
        correct=torch.ones(count, dtype=torch.bool),
        coverage=torch.ones(count, dtype=torch.float64),
    )


@pytest.mark.parametrize(("opening", "closing"), [("<plan>", "</plan>"), ("~", "^")])
def test_plans_are_what_the_configured_marks_enclose(
    opening: str, closing: str, tmp_path: Path, imitator: Path, ranks: Ranks
) -> None:
    play = toy_world.PLAY.model_copy(update={"plan_open": opening, "plan_close": closing})
    one = updates(toy_world.rl_config(tmp_path, imitator, play=play, learning=HRD), ranks)
    for marks in (("<plan>", "</plan>"), ("~", "^")):
        told, _ = one.learn(step_of(one, f"{marks[0]}\nuse way 1\n{marks[1]}"), 0, {})
        is_plan = marks == (opening, closing)  # which is not learned from here: alpha is 0
        assert told["skipped"] == ("all advantages are zero" if is_plan else None)


@pytest.mark.parametrize("key", ["plan_open", "plan_close"])
def test_marks_that_are_no_tokens_are_refused(key: str, tmp_path: Path, imitator: Path, ranks: Ranks) -> None:
    play = toy_world.PLAY.model_copy(update={key: "<think>"})
    with pytest.raises(ConfigError, match=rf"^play\.{key}: '<think>' is no single token") as caught:
        updates(toy_world.rl_config(tmp_path, imitator, play=play, learning=HRD), ranks)
    assert "\n" not in str(caught.value)
    updates(toy_world.rl_config(tmp_path, imitator, play=play), ranks)  # nobody asks
