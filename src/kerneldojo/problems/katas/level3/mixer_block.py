"""Mixer block: one feed-forward layer across positions, one across channels."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 64
LENGTH = 196
WIDTH = 512
SMALL = {"BATCH": 1, "LENGTH": 16, "WIDTH": 32}


class Model(nn.Module):
    """Mixer block: one feed-forward layer across positions, one across channels."""

    def __init__(self, length: int, width: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix1, self.mix2 = nn.Linear(length, 2 * length), nn.Linear(2 * length, length)
        self.wide1, self.wide2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x).transpose(1, 2)
        x = x + self.mix2(F.gelu(self.mix1(y))).transpose(1, 2)
        return x + self.wide2(F.gelu(self.wide1(self.norm2(x))))


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH)]


def get_init_inputs():
    return [LENGTH, WIDTH]
