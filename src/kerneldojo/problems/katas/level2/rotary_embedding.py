"""Rotate the two halves of every head by angles that depend on the position."""

import torch
import torch.nn as nn

BATCH = 8
HEADS = 32
LENGTH = 2048
WIDTH = 128
SMALL = {"BATCH": 2, "HEADS": 4, "LENGTH": 16, "WIDTH": 32}


class Model(nn.Module):
    """Rotate the two halves of every head by angles that depend on the position."""

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        cosine, sine = angles.cos(), angles.sin()
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


def get_inputs():
    return [torch.randn(BATCH, HEADS, LENGTH, WIDTH), torch.randn(LENGTH, WIDTH // 2) * 2]


def get_init_inputs():
    return []
