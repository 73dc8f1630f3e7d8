"""What the sampler takes and gives: settings, the rows that are asked for, and the answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from kerneldojo.episodes import end_id
from kerneldojo.schema import Settings
from kerneldojo.schema.base import NamedPath


class SamplerConfig(Settings):
    """How the sampler spends memory and time; no setting changes what is sampled, but for rounding."""

    max_rows: int = Field(default=256, ge=1)
    """Rows that run at once."""
    max_cache_tokens: int | None = Field(default=None, ge=1)
    """Most tokens that the cache may hold over all rows; fewer rows run at once where it would not do. None: no bound.
    One token takes 2 x layers x key-value heads x head size numbers: 144 KiB for Qwen3-8B in bf16."""
    prefill_tokens: int | None = Field(default=None, ge=1)
    """Tokens of prompts read in one call of the model. None: 4096 on a CPU, 16384 on a GPU."""
    refill: float = Field(default=0.25, ge=0, le=1)
    """Waiting rows are let in once this share of `max_rows` is free: prompts are cheaper to read together."""
    look_every: int | None = Field(default=None, ge=1)
    """Steps between two looks at which rows have ended. None: 1 on a CPU, 8 on a GPU, where a look stops the device."""
    dtype: Literal["model", "bfloat16", "float16"] = "model"
    """Sample in lower precision than the model's weights have: from a copy of them that is refreshed at each call and
    computes exactly as the model does under autocast (`weights.py`). `model`: from the weights themselves."""
    cuda_graphs: bool = True
    """Record the decoding step as CUDA graphs; without effect on a CPU."""
    compile: bool = False
    """On a GPU, and where `dtype` says to sample from a copy: compile the layers' part of the decoding step. The first
    steps take a minute longer, all others less time."""


class ServedConfig(Settings):
    """A vLLM server that samples in place of the trainer's own sampler; see `policies/served.py`."""

    url: str
    """Its address (`http://host:port`). It was started with `VLLM_SERVER_DEV_MODE=1`, or it takes no weights."""
    weights: NamedPath | None = None
    """Folder through which weights travel, which the server must see under the same path; memory (`/dev/shm`) is
    quicker than a disk. None: `served` in the run's own. It holds the weights twice while they change."""
    concurrency: int = Field(default=256, ge=1)
    """Answers under way at once; vLLM batches them itself."""
    logprobs_mode: Literal["raw", "processed"] = "raw"
    """`processed` where the server was started with `--logprobs-mode processed_logprobs`: needed at temperatures other
    than 1, for raw log-probabilities are not those of what is sampled from there."""
    api_key_env: str = "VLLM_API_KEY"
    """Name of the environment variable that holds the server's key, where it wants one."""
    patience_s: float = Field(default=600.0, ge=0)
    """Seconds that a server which does not take weights is tried again before the run ends."""


@dataclass(frozen=True)
class Sampled:
    """One answer."""

    ids: tuple[int, ...]
    """Sampled ids; the last one is an end token where `finish` is `stop`."""
    log_probs: tuple[float, ...]
    """Log-probability of each id under the distribution it was drawn from (scaled by the temperature, truncated by
    top-p and top-k and renormalised), in nats, computed in fp32. All 0 at temperature 0, where nothing is drawn."""
    finish: Literal["stop", "length"]
    """Whether an end token came, or the limit."""
    error: str = ""
    """Why nothing was sampled, in one line; empty where something was."""


@dataclass
class Row:
    """One answer that is asked for."""

    prompt: tuple[int, ...]
    max_tokens: int
    temperature: float = 1.0
    seed: int = 0
    top_p: float = 1.0
    tag: Any = None
    """For the caller."""
    count: int = 0
    """Tokens sampled so far."""


class Samples(ABC):
    """What answers in training: the sampler of this process (`Sampler`), or a server (`ServedSampler`)."""

    config: SamplerConfig

    @property
    @abstractmethod
    def positions(self) -> int | None:
        """Tokens that the model can hold, prompt and answer together; None for no bound."""

    @abstractmethod
    def serve(self, take: Take, give: Give, expected: Sequence[Row] = ()) -> None:
        """Sample rows as they come, until `take` returns None and all have ended. `expected` sizes the memory."""

    @abstractmethod
    def check(self) -> None:
        """Try it out. Raises ValueError in one line."""

    def row(
        self,
        prompt: Sequence[int],
        max_tokens: int,
        *,
        temperature: float = 1.0,
        seed: int = 0,
        top_p: float = 1.0,
        tag: Any = None,
    ) -> Row:
        """A row for `serve`, cut to what fits. Raises ValueError in one line."""
        positions = self.positions or (1 << 31)
        if not prompt:
            raise ValueError("a prompt needs at least one token")
        if len(prompt) >= positions:
            raise ValueError(f"a prompt of {len(prompt)} tokens does not fit a model of {positions} positions")
        if max_tokens < 1 or temperature < 0 or not 0 < top_p <= 1:
            given = f"max_tokens={max_tokens}, temperature={temperature}, top_p={top_p}"
            raise ValueError(f"need max_tokens >= 1, temperature >= 0 and 0 < top_p <= 1, not {given}")
        return Row(tuple(prompt), min(max_tokens, positions - len(prompt)), temperature, seed, top_p, tag)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_tokens: int | Sequence[int],
        temperature: float | Sequence[float] = 1.0,
        seeds: Sequence[int],
        top_p: float | Sequence[float] = 1.0,
    ) -> list[Sampled]:
        """Sample one answer to each prompt.

        Args:
            prompts: Token ids, at least one each. Equal prompts are read once.
            max_tokens: Longest answer, for all or for each. Cut where the model has no more positions.
            temperature: For all or for each; 0 is greedy.
            seeds: One for each prompt: the answer depends on it, not on the other rows.
            top_p: For all or for each; 1 is off.

        Returns:
            The answers, in the order of the prompts.

        Raises:
            ValueError: Lengths that do not agree, an empty or too long prompt, or a number out of range.
        """
        if len(seeds) != len(prompts):
            raise ValueError(f"{len(prompts)} prompts need as many seeds, not {len(seeds)}")
        columns = [each(value, len(prompts)) for value in (max_tokens, temperature, top_p)]
        rows = [
            self.row(prompt, int(limit), temperature=heat, seed=seed, top_p=nucleus, tag=index)
            for index, (prompt, seed, limit, heat, nucleus) in enumerate(zip(prompts, seeds, *columns, strict=True))
        ]
        # Long answers first keeps the batch full to the end; equal prompts side by side are read once.
        waiting = deque(sorted(rows, key=lambda row: (-len(row.prompt) - row.max_tokens, row.prompt)))
        results: dict[int, Sampled] = {}

        def take(free: int, idle: bool) -> list[Row] | None:
            if not waiting:
                return None
            if not idle and free < min(len(waiting), self.config.refill * self.config.max_rows):
                return []
            return [waiting.popleft() for _ in range(min(free, len(waiting)))]

        def give(row: Row, sampled: Sampled) -> None:
            results[row.tag] = sampled

        self.serve(take, give, expected=rows)
        return [results[index] for index in range(len(prompts))]


Take = Callable[[int, bool], "list[Row] | None"]
"""Gives up to so many waiting rows; None when there will never be more. Waits for one where the flag says so."""
Give = Callable[[Row, Sampled], None]
"""Takes a finished row."""


def each(value: float | Sequence[float], count: int) -> Sequence[float]:
    """One value for each of `count` rows."""
    if isinstance(value, int | float):
        return [value] * count
    if len(value) != count:
        raise ValueError(f"{count} prompts need as many values, not {len(value)}")
    return value


def end_ids_of(model: Any, tokenizer: Any = None) -> tuple[int, ...]:
    """Every token that ends an answer: the chat template's, the tokenizer's, and those of the model's settings."""
    found: list[int] = []
    if getattr(tokenizer, "chat_template", None):
        with suppress(ValueError):  # a template that cannot be used is told where a prompt is written with it
            found.extend(one for one in (end_id(tokenizer),) if one is not None)
    for holder in (tokenizer, getattr(model, "generation_config", None), model.config):
        ids = None if holder is None else (getattr(holder, "eos_token_id", None))
        if ids is not None:
            found.extend(ids if isinstance(ids, list | tuple) else [ids])
    return tuple(sorted(set(found)))
