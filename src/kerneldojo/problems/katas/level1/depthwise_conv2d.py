"""Every channel convolved with its own 3 by 3 filter."""

import torch
import torch.nn as nn

BATCH = 32
CHANNELS = 128
SIDE = 96
SMALL = {"BATCH": 2, "CHANNELS": 4, "SIDE": 12}


class Model(nn.Module):
    """Every channel convolved with its own 3 by 3 filter."""

    def __init__(self, channels: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size=3, padding=1, groups=channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS]
