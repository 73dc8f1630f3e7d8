"""Two convolutions with batch normalisation in training mode, and a shortcut."""

import torch
import torch.nn as nn

BATCH = 32
CHANNELS = 64
SIDE = 56
SMALL = {"BATCH": 2, "CHANNELS": 8, "SIDE": 8}


class Model(nn.Module):
    """Two convolutions with batch normalisation in training mode, and a shortcut."""

    def __init__(self, channels: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(x + self.norm2(self.conv2(y)))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS]
