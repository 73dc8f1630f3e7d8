"""Linear layer, then ReLU."""

import torch
import torch.nn as nn

ROWS = 4096
IN = 2048
OUT = 4096
SMALL = {"ROWS": 64, "IN": 64, "OUT": 64}


class Model(nn.Module):
    """Linear layer, then ReLU."""

    def __init__(self, inner: int, outer: int):
        super().__init__()
        self.linear = nn.Linear(inner, outer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.randn(ROWS, IN)]


def get_init_inputs():
    return [IN, OUT]
