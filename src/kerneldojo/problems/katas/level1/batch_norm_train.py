"""Batch normalisation in training mode: batch statistics, and running ones updated."""

import torch
import torch.nn as nn

BATCH = 32
CHANNELS = 64
SIDE = 112
SMALL = {"BATCH": 2, "CHANNELS": 8, "SIDE": 12}


class Model(nn.Module):
    """Batch normalisation in training mode: batch statistics, and running ones updated."""

    def __init__(self, channels: int):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs():
    offset = torch.randn(1, CHANNELS, 1, 1)
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE) * 1.5 + offset]


def get_init_inputs():
    return [CHANNELS]
