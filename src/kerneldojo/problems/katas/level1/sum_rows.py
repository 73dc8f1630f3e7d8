"""Sum of every row."""

import torch
import torch.nn as nn

ROWS = 8192
COLUMNS = 8192
SMALL = {"ROWS": 16, "COLUMNS": 300}


class Model(nn.Module):
    """Sum of every row."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(dim=-1)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
