"""Calls a Triton function that does not exist."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def biased_softmax(scores, bias, out, num_columns, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < num_columns
    x = tl.load(scores + row * num_columns + columns, mask=inside, other=-float("inf"))
    x = (x + tl.load(bias + columns, mask=inside, other=0.0)) * scale
    tl.store(out + row * num_columns + columns, tl.row_softmax(x), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, columns: int, scale: float) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))
        self.scale = scale

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        rows, columns = scores.shape
        out = torch.empty_like(scores)
        biased_softmax[(rows,)](scores, self.bias, out, columns, self.scale, BLOCK=triton.next_power_of_2(columns))
        return out
