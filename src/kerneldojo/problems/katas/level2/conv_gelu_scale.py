"""Strided convolution with a bias, GELU, and a learned scale a channel."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 32
CHANNELS = 64
FILTERS = 128
SIDE = 96
SMALL = {"BATCH": 2, "CHANNELS": 4, "FILTERS": 8, "SIDE": 12}


class Model(nn.Module):
    """Strided convolution with a bias, GELU, and a learned scale a channel."""

    def __init__(self, channels: int, filters: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel_size=4, stride=2, padding=1)
        self.scale = nn.Parameter(1.0 + 0.3 * torch.randn(filters, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.conv(x)) * self.scale


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, FILTERS]
