"""SiLU, x * sigmoid(x), in half precision."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 16384
COLUMNS = 4096
SMALL = {"ROWS": 16, "COLUMNS": 256}


class Model(nn.Module):
    """SiLU, x * sigmoid(x), in half precision."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(x)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS, dtype=torch.float16)]


def get_init_inputs():
    return []
