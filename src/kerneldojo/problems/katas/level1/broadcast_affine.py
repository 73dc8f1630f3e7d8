"""Multiply by a row vector and add a column vector."""

import torch
import torch.nn as nn

ROWS = 8192
COLUMNS = 5000
SMALL = {"ROWS": 16, "COLUMNS": 300}


class Model(nn.Module):
    """Multiply by a row vector and add a column vector."""

    def forward(self, x: torch.Tensor, row: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
        return x * row + column


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS), torch.randn(ROWS, 1)]


def get_init_inputs():
    return []
