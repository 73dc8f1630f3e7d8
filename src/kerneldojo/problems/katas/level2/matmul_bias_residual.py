"""Product plus a bias plus a residual."""

import torch
import torch.nn as nn

M = 4096
K = 2048
N = 4096
SMALL = {"M": 64, "K": 64, "N": 64}


class Model(nn.Module):
    """Product plus a bias plus a residual."""

    def forward(self, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return a @ b + bias + residual


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N), torch.randn(N), torch.randn(M, N)]


def get_init_inputs():
    return []
