"""Linear layer, then exact GELU, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 8192
IN = 2048
OUT = 4096
SMALL = {"ROWS": 64, "IN": 64, "OUT": 64}


class Model(nn.Module):
    """Linear layer, then exact GELU, in bfloat16."""

    def __init__(self, inner: int, outer: int):
        super().__init__()
        self.linear = nn.Linear(inner, outer, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(ROWS, IN, dtype=torch.bfloat16)]


def get_init_inputs():
    return [IN, OUT]
