"""One new token attends to a cache in which groups of heads share keys and values."""

import torch
import torch.nn as nn

BATCH = 32
GROUPS = 8
SHARED = 4
LENGTH = 2048
WIDTH = 128
SMALL = {"BATCH": 2, "GROUPS": 2, "SHARED": 2, "LENGTH": 48, "WIDTH": 16}


class Model(nn.Module):
    """One new token attends to a cache in which groups of heads share keys and values."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        scores = torch.einsum("bgsd,bgld->bgsl", q, k) * q.shape[-1] ** -0.5
        seen = torch.arange(k.shape[2], device=k.device) < lengths[:, None, None, None]
        weights = torch.softmax(scores.masked_fill(~seen, float("-inf")), dim=-1)
        return torch.einsum("bgsl,bgld->bgsd", weights, v)


def get_inputs():
    q = torch.randn(BATCH, GROUPS, SHARED, WIDTH)
    k, v = torch.randn(BATCH, GROUPS, LENGTH, WIDTH), torch.randn(BATCH, GROUPS, LENGTH, WIDTH)
    return [q, k, v, torch.randint(LENGTH // 2, LENGTH + 1, (BATCH,))]


def get_init_inputs():
    return []
