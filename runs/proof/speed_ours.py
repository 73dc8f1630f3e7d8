"""Our trainer's step, made of the same parts as in `training.rl`, with a stopwatch between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kerneldojo.algorithms import LearningConfig, Samples, Turns, policy_loss, prepare
from kerneldojo.policies.rows import Sampled, SamplerConfig, ServedConfig
from kerneldojo.training.learner import Learner
from kerneldojo.training.model_config import ModelConfig
from kerneldojo.training.optimizing import OptimizerConfig
from kerneldojo.training.packing import Batch, Sample, sample_of_token
from kerneldojo.training.parallel import start_ranks
from proof.speed_task import Stopwatch, Task, endless_tokenizer_of, lengths_of, memory, model_of, prompts_of, summary

SIDES: dict[str, dict[str, dict[str, Any]]] = {
    "ours": {"model": {}, "engine": {}},
    "ours-compiled": {"model": {"compile": True}, "engine": {"compile": True}},
}
"""Names of our rows, and the settings that differ from the defaults in them."""


def measure(task: Task, device: str, side: str = "ours") -> dict[str, Any]:
    """Steps of sampling, scoring and learning; see `speed_task.summary`. `side`: one of `SIDES`."""
    settings = SIDES[side]
    sampler = SamplerConfig(max_rows=task.num_rows, **settings["engine"])
    learner = learner_of(task, device, model=settings["model"], sampler=sampler)
    return {**steps_of(task, learner, side), "settings": settings}


def steps_of(task: Task, learner: Learner, side: str) -> dict[str, Any]:
    """What the steps of a learner took."""
    watch = Stopwatch(learner.ranks.device)
    for step in range(task.num_warm + task.num_steps):
        _step(task, learner, watch, step)
        print({name: round(value, 3) for name, value in watch.steps[-1].items()}, flush=True)
    found = {"side": side, "weights": "float32, bf16 in the layers and in sampling", "steps": watch.steps}
    return {**found, **summary(watch, task), "memory": memory(watch.device)}


def learner_of(task: Task, device: str, model: dict[str, Any], sampler: SamplerConfig | ServedConfig) -> Learner:
    """What samples (or has it done by a server) and learns: master weights in float32, layers in bf16 on a GPU."""
    config = ModelConfig(path="random", gradient_checkpointing=task.checkpointing, **model)
    steps, ranks = OptimizerConfig(learning_rate=1e-6), start_ranks(device)
    return Learner(model_of(task, torch.float32), endless_tokenizer_of(task), config, steps, ranks, sampler=sampler)


def generate(task: Task, learner: Learner, number: int) -> list[Sampled]:
    """The answers of a step, each of the length that was asked for."""
    prompts = [prompt for prompt in prompts_of(task, number) for _ in range(task.num_samples)]
    assert learner.sampler is not None
    seeds = range(number * task.num_rows, (number + 1) * task.num_rows)
    lengths = lengths_of(task, number)
    sampled = learner.sampler.generate(prompts, max_tokens=lengths, temperature=1.0, seeds=seeds)
    if [len(one.ids) for one in sampled] != lengths:
        raise RuntimeError("answers have other lengths than they were asked for")
    return sampled


def packed(task: Task, learner: Learner, number: int, sampled: Sequence[Sampled]) -> tuple[list[Sample], list[Batch]]:
    """Prompts and answers of a step, and its micro-batches."""
    prompts = [tuple(prompt) for prompt in prompts_of(task, number) for _ in range(task.num_samples)]
    samples = [Sample(prompt, one.ids) for prompt, one in zip(prompts, sampled, strict=True)]
    rows = task.prompt_tokens + task.answer_tokens
    return samples, learner.pack(samples, rows, rows * task.micro_batch, any_order=True)


def learn(
    task: Task,
    learner: Learner,
    watch: Stopwatch,
    number: int,
    samples: list[Sample],
    batches: list[Batch],
    old: Tensor,
) -> None:
    """Forward and backward passes over all micro-batches and a step of the optimiser. The loss is part of `forward`."""
    prepared = prepare(columns(task, samples, old, number), LearningConfig(prs=None, mrs=None))

    def loss(batch: Batch, log_probs: Tensor) -> Tensor:
        tokens = batch.tokens.cpu()
        value = policy_loss(prepared, log_probs.cpu(), tokens).loss
        now = watch.wait()
        watch.add("forward", now - began[-1])
        began.append(now)
        return value

    began = [watch.wait()]

    def starts(*_: object) -> None:  # a pass begins where the backward pass of the one before has ended
        now = watch.wait()
        if len(began) > 1:
            watch.add("backward", now - began[-1])
        began.append(now)

    handle = learner.scorer.register_forward_pre_hook(starts)
    value = learner.add_gradients(batches, loss)
    watch.add("backward", watch.wait() - began[-1])
    handle.remove()
    with watch.phase("step"):
        if learner.step(number, 0.0, value) is None:
            raise RuntimeError("loss or gradient is not finite")


def columns(task: Task, samples: list[Sample], old: Tensor, number: int) -> Samples:
    """Rewards that cost nothing: drawn."""
    count = task.num_rows
    rewards = torch.rand(count, generator=torch.Generator().manual_seed(number), dtype=torch.float64)
    places = [row // task.num_samples for row in range(count)]
    turns = Turns.of(places, list(range(count)), [0] * count)
    return Samples(turns=turns, rewards=rewards, sample=sample_of_token(samples), log_probs=old)


def _step(task: Task, learner: Learner, watch: Stopwatch, number: int) -> None:
    with watch.phase("generate"):
        began = watch.wait()
        learner.refresh_sampler()
        watch.add("hand_over", watch.wait() - began)
        sampled = generate(task, learner, number)
    samples, batches = packed(task, learner, number, sampled)
    num_tokens = sum(lengths_of(task, number))
    with watch.phase("log_probs"):
        old = learner.score(batches, num_tokens, 1.0).log_probs
    told = torch.tensor([one for each in sampled for one in each.log_probs])
    watch.add("mismatch", float((told - old.cpu()).abs().mean()))
    learn(task, learner, watch, number, samples, batches, old)
    watch.add("answer_tokens", num_tokens)
    watch.add("all_tokens", num_tokens + task.num_rows * task.prompt_tokens)
    watch.end_step()
