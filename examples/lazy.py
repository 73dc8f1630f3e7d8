"""Its kernel only adds the bias; the library still does the rest."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_bias(scores, bias, out, num_columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < num_columns
    x = tl.load(scores + row * num_columns + columns, mask=inside)
    tl.store(out + row * num_columns + columns, x + tl.load(bias + columns, mask=inside), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, columns: int, scale: float) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))
        self.scale = scale

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        rows, columns = scores.shape
        biased = torch.empty_like(scores)
        add_bias[(rows,)](scores, self.bias, biased, columns, BLOCK=triton.next_power_of_2(columns))
        return torch.softmax(biased * self.scale, dim=-1)
