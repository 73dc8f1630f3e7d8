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
    if length != 1 or heads == shared or attention_mask is None or attention_mask.shape[1] != 1 or is_special:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    queries = query.reshape(batch, shared, heads // shared, size)
    output = scaled_dot_product_attention(queries, key, value, attn_mask=attention_mask, scale=scaling)
    return output.reshape(batch, 1, heads, value.shape[-1]), None


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
