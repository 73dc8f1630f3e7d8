"""Depthwise convolution, then a 1 by 1 convolution that mixes the channels."""

import torch
import torch.nn as nn

BATCH = 32
CHANNELS = 96
FILTERS = 192
SIDE = 64
SMALL = {"BATCH": 2, "CHANNELS": 8, "FILTERS": 16, "SIDE": 8}


class Model(nn.Module):
    """Depthwise convolution, then a 1 by 1 convolution that mixes the channels."""

    def __init__(self, channels: int, filters: int):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, kernel_size=3, padding=1, groups=channels)
        self.pointwise = nn.Conv2d(channels, filters, kernel_size=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pointwise(self.depthwise(x))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, FILTERS]
