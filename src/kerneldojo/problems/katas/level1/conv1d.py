"""One-dimensional convolution with a bias."""

import torch
import torch.nn as nn

BATCH = 64
CHANNELS = 64
FILTERS = 128
LENGTH = 8192
SMALL = {"BATCH": 2, "CHANNELS": 8, "FILTERS": 16, "LENGTH": 64}


class Model(nn.Module):
    """One-dimensional convolution with a bias."""

    def __init__(self, channels: int, filters: int):
        super().__init__()
        self.conv = nn.Conv1d(channels, filters, kernel_size=5, padding=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, LENGTH)]


def get_init_inputs():
    return [CHANNELS, FILTERS]
