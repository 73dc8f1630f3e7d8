"""Our trainer's step, made of the same parts as in `training.rl`, with a stopwatch between them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kerneldojo.algorithms import LearningConfig, Samples, Turns, policy_loss, prepare
from kerneldojo.policies.sampler import SamplerConfig
from kerneldojo.training.learner import Learner
from kerneldojo.training.models import ModelConfig
from kerneldojo.training.optimizing import OptimizerConfig
from kerneldojo.training.packing import Batch, Sample, make_batches, sample_of_token
from kerneldojo.training.parallel import start_ranks
from proof.speed_task import Stopwatch, Task, lengths_of, memory, model_of, prompts_of, summary, tokenizer_of


def measure(task: Task, device: str) -> dict[str, Any]:
    """Steps of sampling, scoring and learning; see `speed_task.summary`."""
    ranks = start_ranks(device)
    watch = Stopwatch(ranks.device)
    tokenizer = tokenizer_of(task)
    tokenizer.eos_token = None  # nothing ends an answer before its length
    config = ModelConfig(path="random", gradient_checkpointing=task.checkpointing)
    model = model_of(task, torch.float32)  # master weights; the layers compute in bf16 on a GPU
    sampler = SamplerConfig(max_rows=task.num_rows)
    learner = Learner(model, tokenizer, config, OptimizerConfig(learning_rate=1e-6), ranks, sampler=sampler)
    for step in range(task.num_warm + task.num_steps):
        _step(task, learner, watch, step)
        print({name: round(value, 3) for name, value in watch.steps[-1].items()}, flush=True)
    found = {"side": "ours", "weights": "float32, bf16 in the layers and in sampling", "steps": watch.steps}
    return {**found, **summary(watch, task), "memory": memory(ranks.device)}


def _step(task: Task, learner: Learner, watch: Stopwatch, number: int) -> None:
    prompts = [prompt for prompt in prompts_of(task, number) for _ in range(task.num_samples)]
    assert learner.sampler is not None
    with watch.phase("generate"):
        learner.refresh_sampler()
        seeds = range(number * task.num_rows, (number + 1) * task.num_rows)
        lengths = lengths_of(task, number)
        sampled = learner.sampler.generate(prompts, max_tokens=lengths, temperature=1.0, seeds=seeds)
    if [len(one.ids) for one in sampled] != lengths:
        raise RuntimeError("answers have other lengths than they were asked for")
    samples = [Sample(tuple(prompt), one.ids) for prompt, one in zip(prompts, sampled, strict=True)]
    rows = task.prompt_tokens + task.answer_tokens
    batches = make_batches(
        samples, row_tokens=rows, batch_tokens=rows * task.micro_batch, pad_id=learner.pad_id, any_order=True
    )
    num_tokens = sum(lengths)
    with watch.phase("log_probs"):
        before = learner.score(batches, num_tokens, 1.0).log_probs
    prepared = prepare(_columns(task, samples, before, number), LearningConfig(prs=None, mrs=None))

    def loss(batch: Batch, log_probs: Tensor) -> Tensor:
        watch.add("forward", watch.wait() - began[-1])
        tokens = batch.tokens.cpu()
        value = policy_loss(prepared, log_probs.cpu(), tokens).loss
        began.append(watch.wait())
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
    watch.add("answer_tokens", num_tokens)
    watch.add("all_tokens", num_tokens + task.num_rows * task.prompt_tokens)
    watch.end_step()


def _columns(task: Task, samples: list[Sample], before: Tensor, number: int) -> Samples:
    """Rewards that cost nothing: drawn."""
    count = task.num_rows
    rewards = torch.rand(count, generator=torch.Generator().manual_seed(number), dtype=torch.float64)
    places = [row // task.num_samples for row in range(count)]
    turns = Turns.of(places, list(range(count)), [0] * count)
    return Samples(turns=turns, rewards=rewards, sample=sample_of_token(samples), log_probs=before)
