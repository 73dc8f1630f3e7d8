"""Softplus, log(1 + exp(x)), in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 16384
COLUMNS = 4096
SMALL = {"ROWS": 16, "COLUMNS": 256}


class Model(nn.Module):
    """Softplus, log(1 + exp(x)), in bfloat16."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.softplus(x)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS, dtype=torch.bfloat16) * 2]


def get_init_inputs():
    return []
