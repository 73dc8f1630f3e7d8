"""Product of two half-precision matrices."""

import torch
import torch.nn as nn

M = 4096
K = 4096
N = 4096
SMALL = {"M": 64, "K": 64, "N": 64}
IRREDUCIBLE = True


class Model(nn.Module):
    """Product of two half-precision matrices."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def get_inputs():
    return [torch.randn(M, K, dtype=torch.float16), torch.randn(K, N, dtype=torch.float16)]


def get_init_inputs():
    return []
