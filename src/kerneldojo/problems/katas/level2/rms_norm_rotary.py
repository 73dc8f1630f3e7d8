"""Normalise every head by its root mean square, then rotate it by its position."""

import torch
import torch.nn as nn

BATCH = 8
LENGTH = 2048
HEADS = 16
WIDTH = 128
SMALL = {"BATCH": 2, "LENGTH": 16, "HEADS": 2, "WIDTH": 32}


class Model(nn.Module):
    """Normalise every head by its root mean square, then rotate it by its position."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(1.0 + 0.2 * torch.randn(width))

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        x = x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-5) * self.weight
        even, odd = x[..., 0::2], x[..., 1::2]
        cosine, sine = angles.cos()[:, None, :], angles.sin()[:, None, :]
        return torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], dim=-1).flatten(-2)


def get_inputs():
    return [torch.randn(BATCH, LENGTH, HEADS, WIDTH), torch.randn(LENGTH, WIDTH // 2) * 2]


def get_init_inputs():
    return [WIDTH]
