"""MRS, mismatch rejection sampling (Dr. Kernel, Eq. 6): do not learn from answers that the trainer finds strange.

Engine and trainer compute the same log-probabilities with different kernels and get slightly different numbers, so data
that is meant to be on-policy is not quite. An answer is kept if the geometric mean of its tokens' ratios
π_train / π_rollout lies within a thousandth of 1, and if no token has a ratio below 1e-4 (the veto).

Both log-probabilities must be those of the distribution that was sampled from (same temperature, no top-p or top-k),
taken before the update.

*Short answers.* With noise of standard deviation s a token, the mean over L tokens spreads by s / √L. The bound of the
paper is meant for thousands of tokens; a hundred tokens with s = 0.01 exceed it one time in three by chance alone.
`reference_length` widens the bound by √(reference_length / L) for shorter answers, so that pure noise is accepted
alike at every length.
"""

from __future__ import annotations

import math
import warnings
from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from kerneldojo.schema import Settings

Level = Literal["turn", "trajectory"]


class MRSConfig(Settings):
    """Settings of mismatch rejection; the defaults are the paper's."""

    low: float = Field(default=0.999, gt=0, lt=1)
    """Smallest geometric mean of ratios that is kept."""
    high: float = Field(default=1.001, gt=1)
    """Largest geometric mean of ratios that is kept."""
    veto: float = Field(default=1e-4, ge=0, lt=1)
    """A single token with a ratio below this rejects its sequence; 0 for no veto."""
    level: Level = "trajectory"
    """What a sequence is: all turns of a `trajectory` stand or fall together (released code), or each `turn` alone."""
    veto_level: Level | None = None
    """What the veto rejects; None for the same as `level`. The released code uses `turn`."""
    reference_length: int | None = Field(default=None, gt=0)
    """Number of tokens that the bounds are meant for; shorter sequences get wider ones. None: no adjustment."""
    warn_below: float = Field(default=0.8, ge=0, le=1)
    """Warn when a smaller share of samples than this is accepted."""


class MismatchWarning(UserWarning):
    """So many samples were rejected that engine and trainer, or bound and length, do not fit each other."""


class MismatchRejection(NamedTuple):
    """Which samples survive, and why."""

    keep: Tensor
    """(n,) bool."""
    log_mean: Tensor
    """(n,) float64: log of the geometric mean of the ratios of the sample's sequence."""
    vetoed: Tensor
    """(n,) bool: rejected by the veto."""
    acceptance: float
    """Share of the counted samples that were kept; NaN where there are none."""


def mismatch_rejection(
    train_log_probs: Tensor,
    rollout_log_probs: Tensor,
    sample: Tensor,
    trajectory: Tensor,
    counted: Tensor,
    config: MRSConfig,
) -> MismatchRejection:
    """Keep a sequence iff low ≤ exp(mean over its tokens of log π_train/π_rollout) ≤ high and no token is vetoed.

    train_log_probs, rollout_log_probs: (T,). sample: (T,) int64 in [0, n). trajectory: (n,) int64. counted: (n,) bool,
    the samples that the acceptance rate speaks of. Log-probabilities that are not numbers reject their sequence.
    Warns (`MismatchWarning`) when the acceptance rate is below `config.warn_below`.
    """
    log_ratio = train_log_probs.detach().double() - rollout_log_probs.detach().double()
    sequence = _sequences(trajectory, config.level)
    mean, length = _means(log_ratio, sequence[sample], len(trajectory))
    slack = torch.ones_like(mean)
    if config.reference_length is not None:
        slack = (config.reference_length / length.clamp(min=1)).sqrt().clamp(min=1)
    inside = (mean >= math.log(config.low) * slack) & (mean <= math.log(config.high) * slack)

    condemned = _sequences(trajectory, config.veto_level or config.level)
    below = log_ratio < math.log(config.veto) if config.veto > 0 else torch.zeros_like(log_ratio, dtype=torch.bool)
    hits = torch.zeros_like(trajectory).index_add(0, condemned[sample], below.long())
    vetoed = (hits > 0)[condemned]

    keep = inside[sequence] & ~vetoed
    acceptance = float(keep[counted].double().mean())
    if acceptance < config.warn_below:
        warnings.warn(
            f"MRS accepted {acceptance:.0%} of {int(counted.sum())} samples: check that engine and trainer share "
            "temperature and precision, and for short answers set mrs.reference_length",
            MismatchWarning,
            stacklevel=2,
        )
    return MismatchRejection(keep, mean[sequence], vetoed, acceptance)


def _sequences(trajectory: Tensor, level: Level) -> Tensor:
    """(n,) int64 in [0, n): the sequence that each sample belongs to."""
    if level == "turn":
        return torch.arange(len(trajectory), device=trajectory.device)
    return trajectory.unique(return_inverse=True)[1]


def _means(values: Tensor, sequence: Tensor, num: int) -> tuple[Tensor, Tensor]:
    """Mean of `values` (T,) over each of `num` sequences (0 for an empty one), and their lengths; (num,) each."""
    length = torch.bincount(sequence, minlength=num).double()
    total = values.new_zeros(num).index_add(0, sequence, values)
    return total / length.clamp(min=1), length
