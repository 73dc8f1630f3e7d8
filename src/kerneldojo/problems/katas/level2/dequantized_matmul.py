"""Product with a matrix of int8 weights that carry one scale a column."""

import torch
import torch.nn as nn

M = 2048
K = 4096
N = 4096
SMALL = {"M": 64, "K": 64, "N": 64}


class Model(nn.Module):
    """Product with a matrix of int8 weights that carry one scale a column."""

    def forward(self, a: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return a @ (weight.to(a.dtype) * scale)


def get_inputs():
    return [torch.randn(M, K), torch.randint(-127, 128, (K, N), dtype=torch.int8), torch.rand(N) * 0.02 + 0.005]


def get_init_inputs():
    return []
