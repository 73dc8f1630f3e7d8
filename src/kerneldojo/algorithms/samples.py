"""What goes into a step and what comes out of its preparation: the nouns of `pipeline`."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from kerneldojo.algorithms.config import LearningConfig
from kerneldojo.algorithms.turns import Turns


@dataclass(frozen=True)
class Samples:
    """One step's samples: n turns, and the T tokens of their answers, one answer after the other."""

    turns: Turns
    """Where each sample belongs, and whether its reward is known."""
    rewards: Tensor
    """(n,): reward of the answer, or with HRD and `plan_rewards` of its code; NaN where masked."""
    sample: Tensor
    """(T,) int64, not decreasing: the sample that each token belongs to."""
    log_probs: Tensor
    """(T,): the trainer's log-probabilities of the tokens, before the update."""
    rollout_log_probs: Tensor | None = None
    """(T,): the engine's, of the same distribution; needed for MRS."""
    correct: Tensor | None = None
    """(n,) bool: whether the answer was right; needed for PRS."""
    coverage: Tensor | None = None
    """(n,): profiling ratio in [0, 1], NaN where unknown; needed for PRS."""
    draws: Tensor | None = None
    """(n,): uniform in [0, 1), from the run's own generator; needed for PRS."""
    is_plan: Tensor | None = None
    """(T,) bool: which tokens are plan; needed for HRD."""
    plan_rewards: Tensor | None = None
    """(n,): reward of the plan's tokens, for HRD; None for the same reward as the code (uniform, weighted by alpha)."""


@dataclass(frozen=True)
class Report:
    """What became of the samples of a step, for its log. Counts are of samples unless they say otherwise."""

    num_samples: int
    """All that came in."""
    num_faulty: int
    """Left out because of a fault of ours in their trajectory."""
    num_meaningless: int
    """Left out by `drop_meaningless_turns`."""
    num_counted: int
    """In groups and in the loss's denominator: all others."""
    num_alone: int
    """Counted ones that were the only member of their (prompt, turn)."""
    prs_acceptance: float
    """Share of the counted that PRS kept; 1 where it is off, NaN where none is counted."""
    mrs_acceptance: float
    """Share of the counted that MRS kept; 1 where it is off, NaN where none is counted."""
    num_vetoed: int
    """Counted ones that MRS rejected by its veto."""
    num_kept: int
    """Counted ones that neither rejected."""
    num_informative: int
    """Kept ones with a token whose weighted advantage is not zero."""


@dataclass(frozen=True)
class Prepared:
    """A step ready to be learned from: constants for each token, and what became of the samples."""

    advantages: Tensor
    """(T,) float32: the advantage of each token, HRD's alpha included."""
    weights: Tensor
    """(T,) float32: the weight of each token in the loss of the whole step, 0 where rejected."""
    old_log_probs: Tensor
    """(T,): the trainer's log-probabilities before the update."""
    kept: Tensor
    """(n,) bool: the samples to be learned from; the others need no forward pass."""
    returns: Tensor
    """(n,) float64: return-to-go (of the code's tokens with HRD), NaN where unknown."""
    config: LearningConfig
    report: Report

    @property
    def skip_reason(self) -> str | None:
        """Why there is nothing to learn from in this step, which is then to be skipped and logged; else None."""
        report = self.report
        if report.num_counted == 0:
            return f"no sample with a known reward among {report.num_samples}"
        if report.num_kept == 0:
            return f"all {report.num_counted} samples were rejected"
        return None
