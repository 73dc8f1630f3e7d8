"""Causal attention in half precision."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 8
HEADS = 16
LENGTH = 2048
WIDTH = 64
SMALL = {"BATCH": 1, "HEADS": 2, "LENGTH": 32, "WIDTH": 16}


class Model(nn.Module):
    """Causal attention in half precision."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs():
    return [torch.randn(BATCH, HEADS, LENGTH, WIDTH, dtype=torch.float16) for _ in range(3)]


def get_init_inputs():
    return []
