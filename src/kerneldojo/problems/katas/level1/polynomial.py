"""A polynomial of the fourth degree, element by element."""

import torch
import torch.nn as nn

ROWS = 8192
COLUMNS = 4096
SMALL = {"ROWS": 16, "COLUMNS": 256}


class Model(nn.Module):
    """A polynomial of the fourth degree, element by element."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ((0.25 * x - 0.5) * x + 1.5) * x * x - x + 0.125


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
