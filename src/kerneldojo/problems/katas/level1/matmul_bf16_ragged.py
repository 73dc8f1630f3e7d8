"""Product of two bfloat16 matrices whose sides are no multiples of a block."""

import torch
import torch.nn as nn

M = 4000
K = 3000
N = 2504
SMALL = {"M": 72, "K": 56, "N": 40}
IRREDUCIBLE = True


class Model(nn.Module):
    """Product of two bfloat16 matrices whose sides are no multiples of a block."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def get_inputs():
    return [torch.randn(M, K, dtype=torch.bfloat16), torch.randn(K, N, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
