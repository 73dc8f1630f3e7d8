"""What the sampler takes and gives: settings, the rows that are asked for, and the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from kerneldojo.episodes import end_id
from kerneldojo.schema import Settings


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
