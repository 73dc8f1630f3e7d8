"""Estimates of KL(π ‖ π_ref) from the log-probabilities of sampled tokens (Schulman, "Approximating KL divergence").

With log r = log π_ref - log π, for tokens sampled from π:

- k1 = -log r: unbiased, of high variance, negative for half of the tokens.
- k2 = (log r)² / 2: biased, but its *gradient* is, in expectation, that of the divergence: the one to use as a loss.
- k3 = r - 1 - log r: unbiased, never negative: the one to look at.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from kerneldojo.schema import Settings

KLKind = Literal["k1", "k2", "k3"]

MAX_LOG_RATIO = 20.0
"""Log ratios are clamped to ±20 before exponentiation; e^20 is half a billion, and e^89 overflows float32."""


class KLConfig(Settings):
    """A penalty for leaving the reference policy. Both papers on kernels with RL end up without one."""

    weight: float = Field(default=0.001, gt=0)
    """Factor on the penalty (Kevin tried 0.001 and 0.01: slower, no gain in stability)."""
    kind: KLKind = "k2"
    """Estimator that is differentiated."""


def kl_estimate(log_probs: Tensor, reference_log_probs: Tensor, kind: KLKind) -> Tensor:
    """The chosen estimate for each token. Both inputs (T,), of the sampled tokens. Returns (T,), differentiable."""
    log_ratio = reference_log_probs - log_probs
    match kind:
        case "k1":
            return -log_ratio
        case "k2":
            return 0.5 * log_ratio.square()
        case "k3":
            return torch.expm1(log_ratio.clamp(max=MAX_LOG_RATIO)) - log_ratio
