"""Pre-norm transformer block: causal self-attention, then a GELU feed-forward layer."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 4
LENGTH = 1024
WIDTH = 512
HEADS = 8
SMALL = {"BATCH": 1, "LENGTH": 16, "WIDTH": 32, "HEADS": 2}


class Model(nn.Module):
    """Pre-norm transformer block: causal self-attention, then a GELU feed-forward layer."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH)]


def get_init_inputs():
    return [WIDTH, HEADS]
