"""Product of two square matrices."""

import torch
import torch.nn as nn

N = 4096
SMALL = {"N": 64}
IRREDUCIBLE = True


class Model(nn.Module):
    """Product of two square matrices."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def get_inputs():
    return [torch.randn(N, N), torch.randn(N, N)]


def get_init_inputs():
    return []
