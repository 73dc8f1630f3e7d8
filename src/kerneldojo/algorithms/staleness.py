"""Learning from answers that were sampled one update ago: importance weights under the decoupled objective.

While the judge works on one step's answers, the next step's are written already, by weights that lack one update. Three
policies then have to be told apart:

- π_sampled, the weights that wrote the answer (the behaviour policy),
- π_old, the weights before this update (the proximal policy, around which the ratio is clipped),
- π, the weights that are trained.

Hilton, Cobbe and Schulman (arXiv 2110.00641) take PPO's two uses of "old" apart, and AReaL (arXiv 2505.24298, Eq. 5)
does so for language models: each token's clipped loss, with its ratio π / π_old, is weighted by π_old / π_sampled. The
first factor keeps the step small, the second one makes up for who sampled. The second one is truncated, as IMPALA
(arXiv 1802.01561) truncates its ρ: a little bias for a bounded variance.

Both log-probabilities are the *trainer's*. What the sampling engine makes of the same weights differs from that by
rounding, and is MRS' business (`mrs.py`), which compares engine and trainer under the weights that sampled: one part in
a thousand is a large difference between two kernels, and a tiny one between two versions of a policy.

The weight corrects the token, not what came before it: the tokens of its answer that precede it were sampled by the
older weights, too. Over one update that is what every token-level objective puts up with.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from kerneldojo.algorithms.kl import MAX_LOG_RATIO


class StaleWeights(NamedTuple):
    """What `stale_weights` returns, each (T,)."""

    weights: Tensor
    """float32 in (0, cap]: to be multiplied into the token's weight in the loss."""
    ratio: Tensor
    """float64: π_old / π_sampled before truncation."""
    truncated: Tensor
    """bool: whether the cap decided."""


def stale_weights(old_log_probs: Tensor, sampled_log_probs: Tensor, cap: float) -> StaleWeights:
    """min(π_old / π_sampled, cap) for each token; exactly 1 where the two are equal.

    old_log_probs: (T,), the trainer's, under the weights before this update. sampled_log_probs: (T,), the trainer's,
    under the weights that sampled. cap: at least 1.
    """
    difference = old_log_probs.detach().double() - sampled_log_probs.detach().double()
    ratio = difference.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    return StaleWeights(ratio.clamp(max=cap).float(), ratio, ratio > cap)
