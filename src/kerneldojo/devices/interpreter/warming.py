"""A kernel and a module that touch what most candidates use, run once before forking."""

# pyright: basic
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import nn
from triton.runtime.interpreter import InterpretedFunction

from kerneldojo.devices.interpreter.launching import rewritten, silenced
from kerneldojo.devices.interpreter.metering import Meter


@triton.jit
def _softmax_product(x_ptr, y_ptr, length, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < length
    row = tl.load(x_ptr + tl.program_id(0) * length + offsets, mask=mask, other=-float("inf"))
    row = tl.exp(row - tl.max(row, axis=0))
    row = row / tl.sum(row, axis=0)
    block = tl.broadcast_to(row[:, None], (BLOCK, BLOCK))
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for _ in range(length // 16):
        total += tl.dot(block, block)
    scaled = tl.where(mask, row + 0 * tl.sum(total, axis=1), 0.0)
    tl.store(y_ptr + tl.program_id(0) * length + offsets, scaled, mask=mask)


def rewrite_library() -> None:
    """Rewrite the functions of Triton's own library (`tl.sigmoid`, `tl.softmax`), so that no contestant has to."""
    for module in (tl.standard, tl.random):
        for function in list(vars(module).values()):
            if isinstance(function, InterpretedFunction):
                rewritten(function)


def run() -> None:
    """Launch the kernel metered and silenced, and run a small module."""
    rewrite_library()
    x = torch.rand(2, 16, device="cuda")
    y = torch.empty_like(x)
    launch: Any = _softmax_product
    with torch.no_grad(), Meter():
        launch[(2,)](x, y, 16, BLOCK=16)
        model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 4), nn.LayerNorm(4))
        model(torch.rand(1, 1, 4, 4))
        torch.softmax(x @ x.T, dim=-1)
    with silenced():
        launch[(2,)](x, y, 16, BLOCK=16)
