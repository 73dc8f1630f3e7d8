"""One step of a gated recurrent unit."""

import torch
import torch.nn as nn

BATCH = 4096
IN = 1024
HIDDEN = 1024
SMALL = {"BATCH": 32, "IN": 32, "HIDDEN": 32}


class Model(nn.Module):
    """One step of a gated recurrent unit."""

    def __init__(self, inner: int, hidden: int):
        super().__init__()
        self.input = nn.Linear(inner, 3 * hidden)
        self.hidden = nn.Linear(hidden, 3 * hidden)

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        from_x, from_h = self.input(x), self.hidden(h)
        reset_x, update_x, new_x = from_x.chunk(3, dim=-1)
        reset_h, update_h, new_h = from_h.chunk(3, dim=-1)
        update = torch.sigmoid(update_x + update_h)
        new = torch.tanh(new_x + torch.sigmoid(reset_x + reset_h) * new_h)
        return update * h + (1.0 - update) * new


def get_inputs():
    return [torch.randn(BATCH, IN), torch.randn(BATCH, HIDDEN)]


def get_init_inputs():
    return [IN, HIDDEN]
