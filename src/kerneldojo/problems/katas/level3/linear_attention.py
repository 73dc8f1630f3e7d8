"""Attention without a softmax: positive feature maps, and sums over keys taken first."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 8
HEADS = 16
LENGTH = 4096
WIDTH = 64
SMALL = {"BATCH": 1, "HEADS": 2, "LENGTH": 32, "WIDTH": 16}


class Model(nn.Module):
    """Attention without a softmax: positive feature maps, and sums over keys taken first."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k = F.elu(q) + 1.0, F.elu(k) + 1.0
        context = k.transpose(-1, -2) @ v
        normaliser = q @ k.sum(dim=-2).unsqueeze(-1)
        return (q @ context) / normaliser


def get_inputs():
    return [torch.randn(BATCH, HEADS, LENGTH, WIDTH) for _ in range(3)]


def get_init_inputs():
    return []
