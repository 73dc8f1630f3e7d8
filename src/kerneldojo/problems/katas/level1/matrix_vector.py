"""Product of a matrix and a vector."""

import torch
import torch.nn as nn

ROWS = 16384
COLUMNS = 8192
SMALL = {"ROWS": 32, "COLUMNS": 256}


class Model(nn.Module):
    """Product of a matrix and a vector."""

    def forward(self, a: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return a @ v


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS)]


def get_init_inputs():
    return []
