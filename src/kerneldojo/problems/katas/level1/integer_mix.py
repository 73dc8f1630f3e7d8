"""Integer arithmetic: mix the bits of two int32 matrices."""

import torch
import torch.nn as nn

ROWS = 8192
COLUMNS = 4096
SMALL = {"ROWS": 16, "COLUMNS": 256}


class Model(nn.Module):
    """Integer arithmetic: mix the bits of two int32 matrices."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x ^ (y << 5)) + (x >> 3)


def get_inputs():
    low, high = -(1 << 20), 1 << 20
    return [
        torch.randint(low, high, (ROWS, COLUMNS), dtype=torch.int32),
        torch.randint(low, high, (ROWS, COLUMNS), dtype=torch.int32),
    ]


def get_init_inputs():
    return []
