"""Choose between two matrices by a boolean mask."""

import torch
import torch.nn as nn

ROWS = 8192
COLUMNS = 4096
SMALL = {"ROWS": 16, "COLUMNS": 200}


class Model(nn.Module):
    """Choose between two matrices by a boolean mask."""

    def forward(self, mask: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.where(mask, x, y)


def get_inputs():
    mask = torch.rand(ROWS, COLUMNS) < 0.5
    return [mask, torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
