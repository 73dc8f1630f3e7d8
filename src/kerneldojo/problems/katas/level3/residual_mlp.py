"""Stack of three residual layers, each a norm, a linear map and a ReLU."""

import torch
import torch.nn as nn

ROWS = 8192
WIDTH = 1024
SMALL = {"ROWS": 32, "WIDTH": 64}


class Model(nn.Module):
    """Stack of three residual layers, each a norm, a linear map and a ReLU."""

    def __init__(self, width: int):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.linears = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm, linear in zip(self.norms, self.linears, strict=True):
            x = x + torch.relu(linear(norm(x)))
        return x


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return [WIDTH]
