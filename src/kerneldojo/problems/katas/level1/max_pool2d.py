"""Maximum over windows of 3 by 3 with a stride of 2."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 32
CHANNELS = 64
SIDE = 128
SMALL = {"BATCH": 2, "CHANNELS": 4, "SIDE": 16}


class Model(nn.Module):
    """Maximum over windows of 3 by 3 with a stride of 2."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(x, kernel_size=3, stride=2, padding=1)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE)]


def get_init_inputs():
    return []
