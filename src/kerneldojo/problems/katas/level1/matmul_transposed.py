"""Product of the transpose of one matrix with another, both strided views."""

import torch
import torch.nn as nn

M = 2048
K = 4096
N = 2048
SMALL = {"M": 64, "K": 96, "N": 48}
IRREDUCIBLE = True


class Model(nn.Module):
    """Product of the transpose of one matrix with another, both strided views."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.t() @ b


def get_inputs():
    return [torch.randn(K, M), torch.randn(N, K).t()]


def get_init_inputs():
    return []
