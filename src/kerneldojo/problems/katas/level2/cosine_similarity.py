"""Cosine of the angle between matching rows."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ROWS = 16384
COLUMNS = 2048
SMALL = {"ROWS": 16, "COLUMNS": 200}


class Model(nn.Module):
    """Cosine of the angle between matching rows."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cosine_similarity(x, y, dim=-1)


def get_inputs():
    x = torch.randn(ROWS, COLUMNS)
    return [x, torch.randn(ROWS, COLUMNS) + torch.randn(ROWS, 1) * x]


def get_init_inputs():
    return []
