"""Convolution, ReLU, and a maximum over windows of 2 by 2."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 32
CHANNELS = 32
FILTERS = 64
SIDE = 96
SMALL = {"BATCH": 2, "CHANNELS": 3, "FILTERS": 8, "SIDE": 12}


class Model(nn.Module):
    """Convolution, ReLU, and a maximum over windows of 2 by 2."""

    def __init__(self, channels: int, filters: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel_size=3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(torch.relu(self.conv(x)), kernel_size=2)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, FILTERS]
