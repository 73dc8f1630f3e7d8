"""Between logits and log-probabilities on a GPU: kernels that read the logits once.

What `log_probs` says in torch's operations is a dozen passes over a table of 152k words a token, most of them over
float32 copies of it: some 50 bytes of traffic for each number of the table, where reading it in bf16 takes 2. Here a
row is read once, in its own type, by one program. Each lane keeps the largest number that it has seen, the sum of
exponentials beneath it and their sum weighted by the numbers themselves (Milakov and Gimelshein 2018, "Online
normalizer calculation for softmax"); lanes are put together at the end. Gradients are written where the logits were.

Sums are float32 and in another order than torch's: results agree to rounding, no more.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096
"""Words that a program takes at once."""


def fused_forward(logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probability, entropy and log-normaliser of each row of one chunk (C, V); each (C,), float32."""
    rows, width = logits.shape
    results = torch.empty((3, rows), dtype=torch.float32, device=logits.device)
    kernel: Any = _forward_kernel
    if rows:
        kernel[(rows,)](logits, targets, results, width, logits.stride(0), rows, temperature, BLOCK=BLOCK, num_warps=8)
    return results[0], results[1], results[2]


def fused_backward(logits: Tensor, targets: Tensor, normaliser: Tensor, gradient: Tensor, temperature: float) -> Tensor:
    """d/dlogits of Σ gradient · log_prob for one chunk, (C, V), written over `logits`."""
    rows, width = logits.shape
    kernel: Any = _backward_kernel
    if rows:
        kernel[(rows, triton.cdiv(width, BLOCK))](
            logits, targets, normaliser, gradient.contiguous(), width, logits.stride(0), temperature,
            BLOCK=BLOCK, num_warps=8,
        )  # fmt: skip
    return logits


@triton.jit
def _forward_kernel(
    logits: tl.tensor, targets: tl.tensor, results: tl.tensor, width: tl.tensor, stride: tl.tensor, plane: tl.tensor,
    temperature: tl.tensor, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    base = logits + row * stride
    # Not minus infinity: a lane without a number subtracts this from itself, and from what it reads.
    largest = tl.full([BLOCK], -1e38, tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    weighted = tl.zeros([BLOCK], tl.float32)
    for start in range(0, width, BLOCK):
        column = start + tl.arange(0, BLOCK)
        value = tl.load(base + column, column < width, other=-float("inf")).to(tl.float32) / temperature
        higher = tl.maximum(largest, value)
        kept = tl.exp(largest - higher)
        share = tl.exp(value - higher)
        total = total * kept + share
        weighted = weighted * kept + tl.where(share > 0.0, share * value, 0.0)  # 0 · -inf of masked words
        largest = higher
    top = tl.max(largest, axis=0)
    kept = tl.exp(largest - top)
    whole = tl.sum(total * kept, axis=0)
    normaliser = top + tl.log(whole)
    chosen = tl.load(base + tl.load(targets + row)).to(tl.float32) / temperature
    tl.store(results + row, chosen - normaliser)
    tl.store(results + plane + row, normaliser - tl.sum(weighted * kept, axis=0) / whole)
    tl.store(results + 2 * plane + row, normaliser)


@triton.jit
def _backward_kernel(
    logits: tl.tensor, targets: tl.tensor, normalisers: tl.tensor, gradients: tl.tensor, width: tl.tensor,
    stride: tl.tensor, temperature: tl.tensor, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    place = logits + row * stride + column
    value = tl.load(place, inside, other=-float("inf")).to(tl.float32) / temperature
    share = tl.exp(value - tl.load(normalisers + row))
    is_target = tl.where(column == tl.load(targets + row), 1.0, 0.0)
    slope = (is_target - share) * tl.load(gradients + row) / temperature
    tl.store(place, slope, inside)
