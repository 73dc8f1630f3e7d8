"""Two-dimensional convolution, 3 by 3, without padding."""

import torch
import torch.nn as nn

BATCH = 32
CHANNELS = 64
FILTERS = 128
SIDE = 66
SMALL = {"BATCH": 2, "CHANNELS": 4, "FILTERS": 8, "SIDE": 10}


class Model(nn.Module):
    """Two-dimensional convolution, 3 by 3, without padding."""

    def __init__(self, channels: int, filters: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel_size=3, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS, FILTERS]
