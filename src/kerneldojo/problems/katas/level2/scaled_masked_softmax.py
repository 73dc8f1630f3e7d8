"""Scale scores, hide what a boolean mask forbids, then softmax."""

import torch
import torch.nn as nn

BATCH = 64
ROWS = 512
COLUMNS = 1024
SMALL = {"BATCH": 2, "ROWS": 8, "COLUMNS": 100}


class Model(nn.Module):
    """Scale scores, hide what a boolean mask forbids, then softmax."""

    def forward(self, scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.softmax((scores * 0.125).masked_fill(mask, float("-inf")), dim=-1)


def get_inputs():
    mask = torch.rand(BATCH, ROWS, COLUMNS) < 0.3
    mask[..., 0] = False  # every row keeps something to look at
    return [torch.randn(BATCH, ROWS, COLUMNS) * 16, mask]


def get_init_inputs():
    return []
