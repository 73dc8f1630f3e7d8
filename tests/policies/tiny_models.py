"""Random causal models of a few thousand parameters."""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def tiny(kind: str, **changes):
    torch.manual_seed(0)
    config = {"qwen3": Qwen3Config, "llama": LlamaConfig}[kind](**{**SIZES, **changes})
    return {"qwen3": Qwen3ForCausalLM, "llama": LlamaForCausalLM}[kind](config).float()
