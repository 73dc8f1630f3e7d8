"""Linear layer, then layer normalisation."""

import torch
import torch.nn as nn

ROWS = 8192
IN = 1024
OUT = 1024
SMALL = {"ROWS": 64, "IN": 64, "OUT": 64}


class Model(nn.Module):
    """Linear layer, then layer normalisation."""

    def __init__(self, inner: int, outer: int):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
        self.norm = nn.LayerNorm(outer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x))


def get_inputs():
    return [torch.randn(ROWS, IN)]


def get_init_inputs():
    return [IN, OUT]
