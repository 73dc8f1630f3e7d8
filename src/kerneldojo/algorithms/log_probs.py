"""Log-probabilities of given tokens without a second (or first) copy of the logits.

For 152k words, the logits of 32k tokens take 10 GB in bf16, and the obvious `log_softmax(logits.float())` makes two
float32 copies of twice that size, then keeps one for the backward pass. All that is needed is one number a token. So
rows are taken `chunk_size` at a time, only a chunk is ever float32, and the backward pass computes the chunk again from
what was kept: one log-normaliser a token.

`log_probs_from_hidden` goes one step further and never builds the logits at all: it takes what goes into the output
layer, and that layer's weight. On a GPU it can leave a chunk to kernels of our own (`fused`), which make no float32
copy of it either.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class TokenLogProbs(NamedTuple):
    """What both functions return, each (T,), float32 (float64 for float64 input)."""

    log_probs: Tensor
    """log π(target), differentiable."""
    entropy: Tensor
    """Entropy of π in nats, for logs; not differentiable."""


def log_probs_from_logits(
    logits: Tensor, targets: Tensor, temperature: float = 1.0, chunk_size: int = 1024
) -> TokenLogProbs:
    """log softmax(logits / temperature)[target] for each row.

    logits: (T, V), any floating type. targets: (T,) int64. The gradient has the type of the logits.
    """
    return TokenLogProbs(*_FromLogits.apply(logits, targets, temperature, chunk_size))  # pyright: ignore


def log_probs_from_hidden(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    temperature: float = 1.0,
    chunk_size: int = 1024,
    *,
    is_fused: bool = False,
) -> TokenLogProbs:
    """log softmax(hidden @ weight.T / temperature)[target] for each row; at most (chunk_size, V) logits exist at once.

    hidden: (T, D). weight: (V, D), of one type with hidden. targets: (T,) int64. The weight's gradient is summed over
    chunks in float32 before it is rounded to the weight's type. `is_fused`: by kernels of our own, where they can.
    """
    return TokenLogProbs(*_FromHidden.apply(hidden, weight, targets, temperature, chunk_size, is_fused))  # pyright: ignore


def _forward(logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probability, entropy and log-normaliser of each row of one chunk (C, V)."""
    scaled = logits.to(_accumulator(logits)) / temperature
    normaliser = scaled.logsumexp(1)
    each = scaled.sub_(normaliser[:, None])
    entropy = -each.exp().mul_(each).nan_to_num_(nan=0.0).sum(1)  # 0 · -inf of masked words
    return each.gather(1, targets[:, None])[:, 0], entropy, normaliser


def _backward(logits: Tensor, targets: Tensor, normaliser: Tensor, gradient: Tensor, temperature: float) -> Tensor:
    """d/dlogits of Σ gradient · log_prob for one chunk: gradient · (onehot - softmax) / temperature, (C, V)."""
    scaled = logits.to(_accumulator(logits)) / temperature
    slope = scaled.sub_(normaliser[:, None]).exp_().mul_(-gradient[:, None])
    slope.scatter_add_(1, targets[:, None], gradient[:, None])
    return slope.div_(temperature)


def _accumulator(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)


def _can_fuse(logits: Tensor) -> bool:
    """Whether the kernels are for such logits."""
    return logits.is_cuda and logits.dtype in (torch.bfloat16, torch.float16, torch.float32)


def _kernels() -> Any:
    """The kernels' module, with which Triton comes in: only where there is something to launch."""
    return import_module("kerneldojo.algorithms.fused")


class _FromLogits(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, temperature: float, chunk_size: int
    ) -> tuple[Tensor, Tensor]:
        results = logits.new_empty((3, len(targets)), dtype=_accumulator(logits))
        for start in range(0, len(targets), chunk_size):
            rows = slice(start, start + chunk_size)
            for result, value in zip(results, _forward(logits[rows], targets[rows], temperature), strict=True):
                result[rows] = value
        ctx.save_for_backward(logits, targets, results[2])
        ctx.temperature, ctx.chunk_size = temperature, chunk_size
        log_probs, entropy = results[0].clone(), results[1].clone()
        ctx.mark_non_differentiable(entropy)
        return log_probs, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        gradient = grad_outputs[0]
        logits, targets, normaliser = ctx.saved_tensors
        slope = torch.empty_like(logits)
        for start in range(0, len(targets), ctx.chunk_size):
            rows = slice(start, start + ctx.chunk_size)
            slope[rows] = _backward(logits[rows], targets[rows], normaliser[rows], gradient[rows], ctx.temperature)
        return slope, None, None, None


class _FromHidden(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float, chunk_size: int, is_fused: bool
    ) -> tuple[Tensor, Tensor]:
        results = hidden.new_empty((3, len(targets)), dtype=_accumulator(hidden))
        for start in range(0, len(targets), chunk_size):
            rows = slice(start, start + chunk_size)
            logits = hidden[rows] @ weight.T
            if is_fused and _can_fuse(logits):
                values = _kernels().fused_forward(logits, targets[rows], temperature)
            else:
                values = _forward(logits, targets[rows], temperature)
            for result, value in zip(results, values, strict=True):
                result[rows] = value
        ctx.save_for_backward(hidden, weight, targets, results[2])
        ctx.temperature, ctx.chunk_size, ctx.is_fused = temperature, chunk_size, is_fused
        log_probs, entropy = results[0].clone(), results[1].clone()
        ctx.mark_non_differentiable(entropy)
        return log_probs, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        gradient = grad_outputs[0]
        hidden, weight, targets, normaliser = ctx.saved_tensors
        to_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        to_weight = torch.zeros_like(weight, dtype=_accumulator(weight)) if ctx.needs_input_grad[1] else None
        for start in range(0, len(targets), ctx.chunk_size):
            rows = slice(start, start + ctx.chunk_size)
            logits = hidden[rows] @ weight.T
            told = (logits, targets[rows], normaliser[rows], gradient[rows], ctx.temperature)
            if ctx.is_fused and _can_fuse(logits):
                slope = _kernels().fused_backward(*told)
            else:
                slope = _backward(*told).to(hidden.dtype)
            if to_hidden is not None:
                to_hidden[rows] = slope @ weight
            if to_weight is not None:
                to_weight += slope.T @ hidden[rows]
        return to_hidden, None if to_weight is None else to_weight.to(weight.dtype), None, None, None, None
