"""Linear layer onto a vocabulary, then the cross entropy of each row."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 4096
IN = 1024
OUT = 8192
SMALL = {"ROWS": 32, "IN": 64, "OUT": 128}


class Model(nn.Module):
    """Linear layer onto a vocabulary, then the cross entropy of each row."""

    def __init__(self, inner: int, outer: int):
        super().__init__()
        self.linear = nn.Linear(inner, outer)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.linear(x) * 3.0, labels, reduction="none")


def get_inputs():
    return [torch.randn(ROWS, IN), torch.randint(0, OUT, (ROWS,))]


def get_init_inputs():
    return [IN, OUT]
