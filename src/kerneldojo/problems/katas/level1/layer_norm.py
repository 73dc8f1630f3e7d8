"""Layer normalisation with a learned scale and shift."""

import torch
import torch.nn as nn

ROWS = 16384
COLUMNS = 2048
SMALL = {"ROWS": 16, "COLUMNS": 256}


class Model(nn.Module):
    """Layer normalisation with a learned scale and shift."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS) * 1.5 + 0.5]


def get_init_inputs():
    return [COLUMNS]
