"""Mean over windows of 8 with a stride of 4."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 64
CHANNELS = 128
LENGTH = 4096
SMALL = {"BATCH": 4, "CHANNELS": 8, "LENGTH": 64}


class Model(nn.Module):
    """Mean over windows of 8 with a stride of 4."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.avg_pool1d(x, kernel_size=8, stride=4)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, LENGTH)]


def get_init_inputs():
    return []
