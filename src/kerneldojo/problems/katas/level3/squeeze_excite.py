"""Squeeze-and-excite: gate every channel by a small network of the channel means."""

import torch
import torch.nn as nn

BATCH = 32
CHANNELS = 256
SIDE = 56
REDUCED = 32
SMALL = {"BATCH": 2, "CHANNELS": 16, "SIDE": 8, "REDUCED": 4}


class Model(nn.Module):
    """Squeeze-and-excite: gate every channel by a small network of the channel means."""

    def __init__(self, channels: int, reduced: int):
        super().__init__()
        self.reduce = nn.Linear(channels, reduced)
        self.expand = nn.Linear(reduced, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        summary = x.mean(dim=(2, 3))
        gate = torch.sigmoid(self.expand(torch.relu(self.reduce(summary))))
        return x * gate[:, :, None, None]


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE) + 2.0 * torch.randn(BATCH, CHANNELS, 1, 1)]


def get_init_inputs():
    return [CHANNELS, REDUCED]
