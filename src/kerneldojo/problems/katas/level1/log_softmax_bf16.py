"""Log-softmax over rows whose length is not a power of two, in bfloat16."""

import torch
import torch.nn as nn

ROWS = 8192
COLUMNS = 10000
SMALL = {"ROWS": 16, "COLUMNS": 200}


class Model(nn.Module):
    """Log-softmax over rows whose length is not a power of two, in bfloat16."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS, dtype=torch.bfloat16) * 2]


def get_init_inputs():
    return []
