"""Leaky ReLU with a slope of 0.1 on the negative side."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 8192
COLUMNS = 4096
SMALL = {"ROWS": 16, "COLUMNS": 256}


class Model(nn.Module):
    """Leaky ReLU with a slope of 0.1 on the negative side."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.leaky_relu(x, negative_slope=0.1)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
