"""Attention of a single new token under grouped queries, without copying the cache.

Several query heads share one head of keys and values. Transformers before 5.20 repeat keys and values for them at each
step, which for decoding means to copy the whole cache. But heads that share keys are nothing but several queries to the
same keys: laid side by side as such, ordinary attention does the rest. Everything else goes to transformers' own.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

NAME = "kerneldojo_grouped"
"""As attention implementations are named in a model's configuration."""

SPECIAL = ("softcap", "s_aux", "position_bias", "output_attentions", "cache")
"""Arguments of models whose attention is more than a softmax."""


def grouped_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, Any]:
    """Attention as transformers call it: `query` (B, heads, T, D), `key` and `value` (B, shared heads, L, D)."""
    batch, heads, length, size = query.shape
    shared = key.shape[1]
    is_special = any(kwargs.get(name) is not None and kwargs[name] is not False for name in SPECIAL)
    is_compiling = torch.compiler.is_compiling()
    is_plain = heads == shared and not is_compiling
    if length != 1 or is_plain or attention_mask is None or attention_mask.shape[1] != 1 or is_special:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    queries = query.reshape(batch, shared, heads // shared, size)
    attend = attend_to_slots if is_compiling else _attend
    output = attend(queries.to(key.dtype), key, value, attention_mask, size**-0.5 if scaling is None else scaling)
    return output.reshape(batch, 1, heads, value.shape[-1]), None


def _attend(
    queries: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, scale: float
) -> torch.Tensor:
    return scaled_dot_product_attention(queries, key, value, attn_mask=mask, scale=scale)


# As an operator of its own: torch's compiler would bring keys and values into another layout, that is, copy the cache.
attend_to_slots: Any = torch.library.custom_op(
    "kerneldojo::attend_to_slots",
    lambda queries, key, value, mask, scale: _attend(queries, key, value, mask, scale).contiguous(),
    mutates_args=(),
    schema="(Tensor queries, Tensor key, Tensor value, Tensor mask, float scale) -> Tensor",
)


@attend_to_slots.register_fake
def _(queries: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    return queries.new_empty((*queries.shape[:-1], value.shape[-1]))


AttentionInterface.register(NAME, grouped_attention)
AttentionMaskInterface.register(NAME, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])


@contextmanager
def grouped(config: Any) -> Generator[None]:
    """Let the model of `config` use `grouped_attention` meanwhile, if it uses SDPA."""
    before = config._attn_implementation
    if before == "sdpa":
        config._attn_implementation = NAME
    try:
        yield
    finally:
        if before == "sdpa":
            config._attn_implementation = before
