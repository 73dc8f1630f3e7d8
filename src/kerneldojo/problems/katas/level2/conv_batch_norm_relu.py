"""Convolution, batch normalisation in training mode, ReLU; running statistics updated."""

import torch
import torch.nn as nn

BATCH = 32
CHANNELS = 64
FILTERS = 64
SIDE = 64
SMALL = {"BATCH": 2, "CHANNELS": 4, "FILTERS": 8, "SIDE": 8}


class Model(nn.Module):
    """Convolution, batch normalisation in training mode, ReLU; running statistics updated."""

    def __init__(self, channels: int, filters: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel_size=3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(filters)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.conv(x)))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, FILTERS]
