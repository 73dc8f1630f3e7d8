"""Product of two stacks of matrices."""

import torch
import torch.nn as nn

BATCH = 64
M = 512
K = 512
N = 512
SMALL = {"BATCH": 3, "M": 32, "K": 64, "N": 32}
IRREDUCIBLE = True


class Model(nn.Module):
    """Product of two stacks of matrices."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.bmm(a, b)


def get_inputs():
    return [torch.randn(BATCH, M, K), torch.randn(BATCH, K, N)]


def get_init_inputs():
    return []
