"""Zero what lies above the diagonal of every matrix of a stack."""

import torch
import torch.nn as nn

BATCH = 32
SIDE = 1024
SMALL = {"BATCH": 3, "SIDE": 40}


class Model(nn.Module):
    """Zero what lies above the diagonal of every matrix of a stack."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tril(x)


def get_inputs():
    return [torch.randn(BATCH, SIDE, SIDE)]


def get_init_inputs():
    return []
