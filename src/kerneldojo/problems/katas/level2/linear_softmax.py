"""Linear layer, then softmax over its outputs."""

import torch
import torch.nn as nn

ROWS = 8192
IN = 1024
OUT = 2048
SMALL = {"ROWS": 64, "IN": 64, "OUT": 64}


class Model(nn.Module):
    """Linear layer, then softmax over its outputs."""

    def __init__(self, inner: int, outer: int):
        super().__init__()
        self.linear = nn.Linear(inner, outer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.linear(x), dim=-1)


def get_inputs():
    return [torch.randn(ROWS, IN) * 3]


def get_init_inputs():
    return [IN, OUT]
