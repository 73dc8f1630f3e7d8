"""The order of operations, in one place: from rewards to a loss.

    rewards -> trajectories with a fault of ours leave -> return-to-go -> advantages over all members of a group
            -> PRS and MRS say what is learned from -> loss, divided by the number of samples before rejection

The order matters. Rejected samples stay in the baselines and in the returns of earlier turns: what they earned is known
and true, only learning *from* them is unwanted. Dropping them before the baseline would compare an answer with a
selection of the others; dividing by what is left would make a nearly empty step as large as a full one.

    prepared = prepare(samples, DR_KERNEL)              # over the whole step, on any device, no gradients
    if prepared.skip_reason:                            # nothing to learn from: skip the step and log why
        ...
    for tokens in micro_batches:                        # (K,) int64 positions in [0, T)
        policy_loss(prepared, log_probs_of(tokens), tokens).loss.backward()
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kerneldojo.algorithms.advantages import advantages
from kerneldojo.algorithms.aggregation import token_weights
from kerneldojo.algorithms.config import LearningConfig
from kerneldojo.algorithms.filters import meaningful_turns
from kerneldojo.algorithms.groups import Groups
from kerneldojo.algorithms.hrd import token_advantages
from kerneldojo.algorithms.kl import kl_estimate
from kerneldojo.algorithms.losses import clipped_policy_loss
from kerneldojo.algorithms.mrs import mismatch_rejection
from kerneldojo.algorithms.prs import profiling_rejection
from kerneldojo.algorithms.returns import return_to_go
from kerneldojo.algorithms.samples import Prepared, Report, Samples
from kerneldojo.algorithms.turns import Turns


def prepare(samples: Samples, config: LearningConfig) -> Prepared:
    """Everything between the rewards of a step and its loss. Pure, no gradients, to be called on the *whole* step.

    Raises ValueError where a column that the configuration needs is missing.
    """
    turns = samples.turns.without_faulty_trajectories()
    meaningful = torch.ones_like(turns.valid)
    if config.drop_meaningless_turns:
        meaningful = meaningful_turns(samples.rewards, turns)
    counted = turns.valid & meaningful
    returns = return_to_go(samples.rewards.double(), turns, config.returns)
    per_turn = advantages(returns, turns.with_valid(counted), config.advantage)
    per_token = _spread(per_turn, samples, turns.with_valid(counted), config)

    prs_keep = _profiling(samples, config)
    mrs_keep, vetoed, mrs_acceptance = _mismatch(samples, counted, config)
    kept = counted & prs_keep & mrs_keep
    taught = kept[samples.sample] & (per_token != 0)
    report = Report(
        num_samples=len(turns),
        num_faulty=int((~turns.valid).sum()),
        num_meaningless=int((turns.valid & ~meaningful).sum()),
        num_counted=int(counted.sum()),
        num_alone=int((counted & (Groups.by(turns.prompt, turns.turn, members=counted).size() == 1)).sum()),
        prs_acceptance=float(prs_keep[counted].double().mean()),
        mrs_acceptance=mrs_acceptance,
        num_vetoed=int((vetoed & counted).sum()),
        num_kept=int(kept.sum()),
        num_informative=len(samples.sample[taught].unique()),
    )
    weights = token_weights(samples.sample, counted, kept, config.aggregation)
    return Prepared(per_token.float(), weights, samples.log_probs.detach(), kept, returns, config, report)


class StepLoss(NamedTuple):
    """The loss of some tokens of a step, and sums for its log (divide them by `num_tokens`)."""

    loss: Tensor
    """Scalar, differentiable: the share of these tokens in the loss of the whole step."""
    num_tokens: int
    """Tokens that were learned from."""
    num_clipped: int
    """Of these, clipped by the ratio's range."""
    num_dual_clipped: int
    """Of these, clipped by the dual clip."""
    sum_kl: float
    """Sum of the k3 estimates of KL(old ‖ new): how far the policy has moved since it sampled."""


def policy_loss(
    prepared: Prepared,
    log_probs: Tensor,
    tokens: Tensor | None = None,
    reference_log_probs: Tensor | None = None,
) -> StepLoss:
    """The loss of the given tokens; over any partition of the step into micro-batches or ranks these sum to the whole.

    log_probs: (K,) differentiable, under the policy that is trained. tokens: (K,) int64, which of the T tokens they
    are; None for all. reference_log_probs: (K,), needed if the configuration has a KL penalty.

    (Where ranks *average* gradients, as DDP and FSDP do, multiply by the number of ranks.)
    """
    everything = torch.arange(len(prepared.weights), device=log_probs.device) if tokens is None else tokens
    weights = prepared.weights[everything]
    # Rejected tokens are taken out rather than multiplied by 0: their log-probabilities may be infinite.
    live = (weights > 0).nonzero()[:, 0]
    weights, chosen, log_probs = weights[live], everything[live], log_probs[live]
    old = prepared.old_log_probs[chosen]
    result = clipped_policy_loss(log_probs, old, prepared.advantages[chosen], prepared.config.clip)
    losses = result.loss
    if prepared.config.kl is not None:
        if reference_log_probs is None:
            raise ValueError("the configuration has a KL penalty: reference_log_probs are needed")
        penalty = kl_estimate(log_probs, reference_log_probs[live], prepared.config.kl.kind)
        losses = losses + prepared.config.kl.weight * penalty
    moved = kl_estimate(old.double(), log_probs.detach().double(), "k3")
    return StepLoss(
        loss=(losses * weights).sum(),
        num_tokens=len(live),
        num_clipped=int(result.clipped.sum()),
        num_dual_clipped=int(result.dual_clipped.sum()),
        sum_kl=float(moved.sum()),
    )


def _spread(code: Tensor, samples: Samples, members: Turns, config: LearningConfig) -> Tensor:
    """(T,): each token's advantage, from its sample's or, with HRD, from its class's."""
    if config.hrd is None:
        if samples.plan_rewards is not None:
            raise ValueError("plan_rewards are given, but hrd is off: give the uniform reward instead")
        return code[samples.sample]
    is_plan = _needed(samples.is_plan, "is_plan", "hrd")
    plan = code
    if samples.plan_rewards is not None:
        plan_returns = return_to_go(samples.plan_rewards.double(), members, config.returns)
        plan = advantages(plan_returns, members, config.advantage)
    return token_advantages(plan, code, samples.sample, is_plan, config.hrd)


def _profiling(samples: Samples, config: LearningConfig) -> Tensor:
    """(n,) bool: what PRS keeps."""
    if config.prs is None:
        return torch.ones_like(samples.turns.valid)
    coverage, correct, draws = (
        _needed(column, name, "prs")
        for name, column in (
            ("coverage", samples.coverage),
            ("correct", samples.correct),
            ("draws", samples.draws),
        )
    )
    return profiling_rejection(coverage, correct, draws, config.prs).keep


def _mismatch(samples: Samples, counted: Tensor, config: LearningConfig) -> tuple[Tensor, Tensor, float]:
    """What MRS keeps and what it vetoes, (n,) bool each, and its acceptance rate."""
    if config.mrs is None:
        acceptance = 1.0 if bool(counted.any()) else float("nan")
        return torch.ones_like(counted), torch.zeros_like(counted), acceptance
    rollout = _needed(samples.rollout_log_probs, "rollout_log_probs", "mrs")
    trajectory = samples.turns.trajectory
    result = mismatch_rejection(samples.log_probs, rollout, samples.sample, trajectory, counted, config.mrs)
    return result.keep, result.vetoed, result.acceptance


def _needed(column: Tensor | None, name: str, key: str) -> Tensor:
    if column is None:
        raise ValueError(f"samples.{name} is needed for {key}; set {key} to none to do without")
    return column
