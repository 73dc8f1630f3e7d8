"""Gate one matrix by the GELU of another, in bfloat16."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 16384
COLUMNS = 4096
SMALL = {"ROWS": 16, "COLUMNS": 256}


class Model(nn.Module):
    """Gate one matrix by the GELU of another, in bfloat16."""

    def forward(self, gate: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return F.gelu(gate, approximate="tanh") * value


def get_inputs():
    return [
        torch.randn(ROWS, COLUMNS, dtype=torch.bfloat16),
        torch.randn(ROWS, COLUMNS, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return []
