"""Group normalisation over four groups of channels."""

import torch
import torch.nn as nn

BATCH = 32
CHANNELS = 64
SIDE = 112
SMALL = {"BATCH": 2, "CHANNELS": 8, "SIDE": 12}


class Model(nn.Module):
    """Group normalisation over four groups of channels."""

    def __init__(self, channels: int):
        super().__init__()
        self.norm = nn.GroupNorm(4, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE) + torch.randn(BATCH, CHANNELS, 1, 1)]


def get_init_inputs():
    return [CHANNELS]
