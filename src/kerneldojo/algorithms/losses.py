"""The clipped policy loss, token by token.

The ratio of new to old probability is 1 at the first step after sampling, where the gradient is that of plain
REINFORCE. On later steps the clip ends a token's influence once its probability moved far enough in its favour:

- *clip-higher* (DAPO): more room upwards (0.28) than downwards (0.2), so that rare good tokens can grow.
- *dual clip* (arXiv 1912.09729): for a negative advantage the loss is unbounded in the ratio; it is cut at c · |A|.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from kerneldojo.algorithms.kl import MAX_LOG_RATIO
from kerneldojo.schema import Settings


class ClipConfig(Settings):
    """Range of the probability ratio; the defaults are Dr. Kernel's and Kevin's."""

    low: float = Field(default=0.2, ge=0, le=1)
    """The ratio is clipped below at 1 - low."""
    high: float = Field(default=0.28, ge=0)
    """The ratio is clipped above at 1 + high."""
    dual: float | None = Field(default=3.0, gt=1)
    """Largest ratio that a negative advantage is multiplied with; None for no such limit."""


class PolicyLoss(NamedTuple):
    """What `clipped_policy_loss` returns, each (T,)."""

    loss: Tensor
    """To be minimised, differentiable."""
    clipped: Tensor
    """bool: the ratio's clip decided, so that the token has no gradient."""
    dual_clipped: Tensor
    """bool: the dual clip decided, so that the token has no gradient."""


def clipped_policy_loss(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, config: ClipConfig) -> PolicyLoss:
    """-min(ρA, clip(ρ, 1-low, 1+high)A), and for A < 0 at most -dual · A, where ρ = exp(log_probs - old_log_probs).

    log_probs: (T,) differentiable, of the sampled tokens under the policy that is trained. old_log_probs: (T,) under
    the policy at the start of the step. advantages: (T,); the loss is homogeneous in them, so that a token's weight may
    be put there.
    """
    ratio = (log_probs - old_log_probs.detach()).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    plain = -ratio * advantages
    bounded = -ratio.clamp(1 - config.low, 1 + config.high) * advantages
    loss = torch.maximum(plain, bounded)
    clipped = bounded > plain
    dual_clipped = torch.zeros_like(clipped)
    if config.dual is not None:
        ceiling = -config.dual * advantages
        dual_clipped = (advantages < 0) & (loss > ceiling)
        loss = torch.where(dual_clipped, ceiling, loss)
    return PolicyLoss(loss, clipped, dual_clipped)
