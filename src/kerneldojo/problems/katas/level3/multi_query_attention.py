"""Attention of many query heads to one shared head of keys and values, projections included."""

import torch
import torch.nn as nn

BATCH = 8
HEADS = 8
LENGTH = 1024
WIDTH = 64
SMALL = {"BATCH": 1, "HEADS": 2, "LENGTH": 32, "WIDTH": 16}


class Model(nn.Module):
    """Attention of many query heads to one shared head of keys and values, projections included."""

    def __init__(self, heads: int, width: int):
        super().__init__()
        self.heads, self.width = heads, width
        self.query = nn.Linear(heads * width, heads * width, bias=False)
        self.key_value = nn.Linear(heads * width, 2 * width, bias=False)
        self.out = nn.Linear(heads * width, heads * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q = self.query(x).view(batch, length, self.heads, self.width).transpose(1, 2)
        k, v = self.key_value(x).unsqueeze(1).chunk(2, dim=-1)
        weights = torch.softmax(q @ k.transpose(-1, -2) * self.width**-0.5, dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, -1))


def get_inputs():
    return [torch.randn(BATCH, LENGTH, HEADS * WIDTH) * 2]


def get_init_inputs():
    return [HEADS, WIDTH]
