"""Squared distances between all pairs of points of two sets."""

import torch
import torch.nn as nn

M = 4096
N = 4096
WIDTH = 256
SMALL = {"M": 48, "N": 64, "WIDTH": 32}


class Model(nn.Module):
    """Squared distances between all pairs of points of two sets."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.square().sum(dim=1)[:, None] + y.square().sum(dim=1)[None, :] - 2.0 * (x @ y.t())


def get_inputs():
    return [torch.randn(M, WIDTH), torch.randn(N, WIDTH)]


def get_init_inputs():
    return []
