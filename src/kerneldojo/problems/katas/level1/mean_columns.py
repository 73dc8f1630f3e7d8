"""Mean of every column."""

import torch
import torch.nn as nn

ROWS = 16384
COLUMNS = 4096
SMALL = {"ROWS": 64, "COLUMNS": 128}


class Model(nn.Module):
    """Mean of every column."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(dim=0)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
