"""PRS, profiling-based rejection sampling (Dr. Kernel, Eq. 9): do not learn from answers that are right but lazy.

A candidate that replaces one trivial operation is correct, hence rewarded, hence learned. The profiling ratio PR tells
it apart: its own kernels take a hundredth of the time. Such answers stay in the baselines, but only a share of them
that grows with PR is learned from.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from kerneldojo.schema import Settings


class PRSConfig(Settings):
    """Settings of profiling-based rejection; the defaults are the paper's but for `applies_to`."""

    threshold: float = Field(default=0.3, ge=0, le=1)
    """τ: answers with PR up to this are rejected."""
    softness: float = Field(default=0.1, ge=0)
    """s: width in PR over which the probability of keeping rises from 0 to 1. Zero: hard, kept from τ on."""
    applies_to: Literal["correct", "all"] = "correct"
    """`correct`: wrong answers are always kept, as negative examples. `all`: the paper to the letter, where a failure
    has PR = 0 and is dropped, so that nothing is ever learned from failures."""


class ProfilingRejection(NamedTuple):
    """Which samples survive, each (n,)."""

    keep: Tensor
    """bool."""
    probability: Tensor
    """Probability with which it was kept."""


def profiling_rejection(coverage: Tensor, correct: Tensor, draws: Tensor, config: PRSConfig) -> ProfilingRejection:
    """Keep with probability p = clip((PR - τ) / s, 0, 1), or with certainty where the rule does not apply.

    coverage: (n,) PR in [0, 1]; NaN where unknown, which counts as 0 (an unreadable profile must not be a way past the
    rule; on devices without profiles leave PRS off). correct: (n,) bool. draws: (n,) uniform in [0, 1), passed in so
    that a resumed run repeats itself.
    """
    ratio = coverage.nan_to_num(nan=0.0)
    if config.softness > 0:
        probability = ((ratio - config.threshold) / config.softness).clamp(0, 1)
    else:
        probability = (ratio >= config.threshold).to(ratio.dtype)
    if config.applies_to == "correct":
        probability = torch.where(correct, probability, torch.ones_like(probability))
    return ProfilingRejection(draws < probability, probability)
