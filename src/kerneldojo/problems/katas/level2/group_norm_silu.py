"""Group normalisation, then SiLU."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 32
CHANNELS = 128
SIDE = 64
SMALL = {"BATCH": 2, "CHANNELS": 16, "SIDE": 8}


class Model(nn.Module):
    """Group normalisation, then SiLU."""

    def __init__(self, channels: int):
        super().__init__()
        self.norm = nn.GroupNorm(8, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.norm(x))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE) * 1.5 + torch.randn(BATCH, CHANNELS, 1, 1)]


def get_init_inputs():
    return [CHANNELS]
