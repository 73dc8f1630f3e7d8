"""The work that both trainers do: a model's shape, prompts, lengths, and a stopwatch that waits for the device."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from pydantic import Field

from kerneldojo.schema import Frozen


class Task(Frozen):
    """What is measured; the defaults are Qwen3-0.6B's shape and what was promised."""

    vocabulary: int = 151_936
    hidden: int = 1024
    intermediate: int = 3072
    layers: int = 28
    heads: int = 16
    kv_heads: int = 8
    head_dim: int = 128
    num_prompts: int = Field(default=64, gt=0)
    """Different prompts a step."""
    num_samples: int = Field(default=2, ge=2)
    """Answers to each: the fewest that a group can have."""
    prompt_tokens: int = Field(default=512, gt=0)
    answer_tokens: int = Field(default=512, gt=0)
    """Of every answer; the end token is ignored."""
    shortest: int | None = None
    """Where given, lengths are drawn from here to `answer_tokens`."""
    micro_batch: int = Field(default=8, gt=0)
    """Rows of one forward and backward pass."""
    checkpointing: bool = False
    """Whether activations are computed again in the backward pass."""
    num_warm: int = 2
    """Steps before the clock counts."""
    num_steps: int = 5
    """Steps that count."""
    seed: int = 0

    @property
    def num_rows(self) -> int:
        """Answers of a step."""
        return self.num_prompts * self.num_samples

    @property
    def unused_id(self) -> int:
        """A token that the model cannot write: its output layer ends before."""
        return self.vocabulary


TINY: dict[str, Any] = {
    "vocabulary": 512,
    "hidden": 64,
    "intermediate": 128,
    "layers": 2,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 16,
    "num_prompts": 4,
    "prompt_tokens": 24,
    "answer_tokens": 16,
    "micro_batch": 4,
    "num_warm": 1,
    "num_steps": 2,
}


def model_of(task: Task, dtype: torch.dtype) -> Any:
    """Random weights of the shape, on the CPU, the same for all."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(task.seed)
    config: Any = Qwen3Config(
        vocab_size=task.vocabulary,
        hidden_size=task.hidden,
        intermediate_size=task.intermediate,
        num_hidden_layers=task.layers,
        num_attention_heads=task.heads,
        num_key_value_heads=task.kv_heads,
        head_dim=task.head_dim,
        max_position_embeddings=max(4096, 2 * (task.prompt_tokens + task.answer_tokens)),
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
        attn_implementation="sdpa",
    )
    return Qwen3ForCausalLM(config).to(dtype)


def tokenizer_of(task: Task) -> Any:
    """One word for each token, so that a text of so many words has exactly so many tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"<pad>": 0, **{f"w{number}": number for number in range(1, task.vocabulary)}, "<end>": task.unused_id}
    inner: Any = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="<end>", unk_token="<pad>", padding_side="left"
    )


def endless_tokenizer_of(task: Task) -> Any:
    """The same without an end token: nothing ends an answer before its length."""
    tokenizer = tokenizer_of(task)
    tokenizer.eos_token = None
    return tokenizer


def prompts_of(task: Task, step: int) -> list[list[int]]:
    """The different prompts of a step, as ids."""
    draws = np.random.default_rng([task.seed, 1, step]).integers(1, task.vocabulary, (task.num_prompts, 1))
    rest = np.random.default_rng([task.seed, 2, step]).integers(
        1, task.vocabulary, (task.num_prompts, task.prompt_tokens - 1)
    )
    return np.concatenate((draws, rest), 1).tolist()


def text_of(ids: list[int]) -> str:
    """Words that the tokenizer turns into these ids."""
    return " ".join(f"w{number}" for number in ids)


def lengths_of(task: Task, step: int) -> list[int]:
    """Tokens of each answer of a step, prompt by prompt."""
    if task.shortest is None:
        return [task.answer_tokens] * task.num_rows
    draws = np.random.default_rng([task.seed, 3, step])
    return draws.integers(task.shortest, task.answer_tokens + 1, task.num_rows).tolist()


class Stopwatch:
    """Seconds of named phases, step by step; the device has finished whenever a phase begins or ends."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.steps: list[dict[str, float]] = []
        self._now: dict[str, float] = defaultdict(float)

    def wait(self) -> float:
        """The time, once the device has nothing to do."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    @contextmanager
    def phase(self, name: str) -> Generator[None]:
        """Count what happens inside as `name`."""
        start = self.wait()
        try:
            yield
        finally:
            self._now[name] += self.wait() - start

    def add(self, name: str, amount: float) -> None:
        """Count something that is no time."""
        self._now[name] += amount

    def end_step(self) -> None:
        """The next phases belong to the next step."""
        self.steps.append(dict(self._now))
        self._now.clear()


PHASES = ("generate", "log_probs", "forward", "backward", "step")


def summary(watch: Stopwatch, task: Task) -> dict[str, Any]:
    """Medians over the steps that count, tokens a second, and what the first steps took beyond that."""
    counted = watch.steps[task.num_warm :]
    median = {name: statistics.median(step.get(name, 0.0) for step in counted) for name in PHASES}
    tokens = {name: statistics.median(step[name] for step in counted) for name in ("answer_tokens", "all_tokens")}
    rates = {"generate": tokens["answer_tokens"] / median["generate"] if median["generate"] else None}
    rates |= {name: tokens["all_tokens"] / median[name] if median[name] else None for name in PHASES[1:]}
    learning = sum(median[name] for name in PHASES[1:])
    rates["learn"] = tokens["all_tokens"] / learning
    warm = {
        name: sum(max(0.0, step.get(name, 0.0) - median[name]) for step in watch.steps[: task.num_warm])
        for name in PHASES
    }
    return {"median_seconds": median, "tokens": tokens, "tokens_a_second": rates, "warm_up_seconds": warm}


def memory(device: torch.device) -> dict[str, float] | None:
    """Peak of the device's memory since the start of the process, in GiB."""
    if device.type != "cuda":
        return None
    allocated, reserved = torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)
    return {"allocated_gib": allocated / 2**30, "reserved_gib": reserved / 2**30}
