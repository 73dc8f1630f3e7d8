"""Gated feed-forward layer: down(silu(gate(x)) * up(x))."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 4096
WIDTH = 1024
HIDDEN = 2816
SMALL = {"ROWS": 32, "WIDTH": 32, "HIDDEN": 64}


class Model(nn.Module):
    """Gated feed-forward layer: down(silu(gate(x)) * up(x))."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


def get_inputs():
    return [torch.randn(ROWS, WIDTH)]


def get_init_inputs():
    return [WIDTH, HIDDEN]
