"""What a step makes of its samples and says of it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize("is_open", [False, True])
def test_a_plan_may_be_opened_by_the_chat_template(is_open: bool, tmp_path: Path, imitator: Path, ranks: Ranks) -> None:
    config = toy_world.rl_config(tmp_path, imitator, learning=HRD)
    learner = open_learner(config.model, config.optimizer, ranks)
    tokenizer: Any = learner.tokenizer
    if is_open:
        tokenizer.chat_template = tokenizer.chat_template.replace("'<|assistant|>' }}", "'<|assistant|><plan>' }}")
    told, _ = Updates(config, learner).learn(step_of(Updates(config, learner), "use way 1\n</plan>"), 0, {})
    assert told["skipped"] == ("all advantages are zero" if is_open else None)


@pytest.mark.parametrize("key", ["plan_open", "plan_close"])
def test_marks_that_are_no_tokens_are_refused(key: str, tmp_path: Path, imitator: Path, ranks: Ranks) -> None:
    play = toy_world.PLAY.model_copy(update={key: "<think>"})
    with pytest.raises(ConfigError, match=rf"^play\.{key}: '<think>' is no single token") as caught:
        updates(toy_world.rl_config(tmp_path, imitator, play=play, learning=HRD), ranks)
    assert "\n" not in str(caught.value)
    updates(toy_world.rl_config(tmp_path, imitator, play=play), ranks)  # nobody asks


@pytest.mark.parametrize(("bad", "applied"), [({0}, 1), ({1}, 1), ({0, 1}, 0), (set(), 2)])
def test_of_a_step_in_parts_the_log_says_which_were_made(
    bad: set[int], applied: int, tmp_path: Path, imitator: Path, ranks: Ranks
) -> None:
    plain = {"prs": None, "mrs": None}
    one = updates(toy_world.rl_config(tmp_path, imitator, learning=plain, updates_per_step=2), ranks)
    data = step_of(one, "way 1", num_prompts=2)
    for prompt in bad:
        data.rewards[2 * prompt] = torch.inf
    before = [weight.clone() for weight in one.learner.model.parameters()]
    told, _ = one.learn(data, 0, {})
    changed = any(not torch.equal(old, new) for old, new in zip(before, one.learner.model.parameters(), strict=True))
    assert told["updates"] == {"applied": applied, "skipped": 2 - applied} and changed == (applied > 0)
    assert all(weight.isfinite().all() for weight in one.learner.model.parameters())
    words = {0: "loss or gradient is not finite", 1: "loss or gradient is not finite in 1 of 2 updates", 2: None}
    assert told["skipped"] == words[applied] and one.num_skipped == (applied < 2)
    if applied:
        assert all(math.isfinite(told[name]) for name in ("loss", "grad_norm", "clipped", "kl"))


def test_a_step_in_parts_has_the_loss_of_the_whole(tmp_path: Path, imitator: Path, ranks: Ranks) -> None:
    """Weights that hardly move: what the parts' losses say together is what one update's loss says."""
    told: dict[int, float] = {}
    for count in (1, 2):
        settings = {"learning": {"prs": None, "mrs": None}, "optimizer": {"learning_rate": 1e-12}}
        one = updates(toy_world.rl_config(tmp_path, imitator, **settings, updates_per_step=count), ranks)
        data = step_of(one, "way 1", num_prompts=2)
        data.samples[0] = replace(data.samples[0], answer=data.samples[0].answer[:-1])  # else the loss is 0
        data = replace(data, rollout_log_probs=data.rollout_log_probs[1:])
        told[count] = one.learn(data, 0, {})[0]["loss"]
    assert told[1] != 0 and told[2] == pytest.approx(told[1], rel=1e-4)
