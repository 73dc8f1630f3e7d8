"""Product of a tall matrix and a narrow one."""

import torch
import torch.nn as nn

M = 65536
K = 512
N = 64
SMALL = {"M": 128, "K": 64, "N": 32}
IRREDUCIBLE = True


class Model(nn.Module):
    """Product of a tall matrix and a narrow one."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []
