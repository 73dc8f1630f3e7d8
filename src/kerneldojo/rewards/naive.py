"""FOR EXPERIMENTS ONLY: the reward that an evaluator without exploit checks would have paid.

It exists to measure what the checks are worth: one policy is trained on it, another on the judge's own verdict, and
both are scored by the full judge. It pays for cheating. Never train anything on it that is meant to be used.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kerneldojo.rewards.dr_kernel import DrKernelConfig, dr_kernel
from kerneldojo.rewards.kevin import KevinConfig, kevin
from kerneldojo.rewards.outcome import Outcome, judged
from kerneldojo.rewards.reward import Reward
from kerneldojo.rewards.tritonrl import TritonRLConfig, tritonrl
from kerneldojo.schema import Evaluation, Settings, Status


class NaiveConfig(Settings):
    """Settings of the unchecked reward."""

    type: Literal["naive_for_experiments_only"] = "naive_for_experiments_only"
    base: Annotated[DrKernelConfig | KevinConfig | TritonRLConfig, Field(discriminator="type")] = DrKernelConfig()
    """The formula that is applied to what a naive evaluator believes."""


def believed(evaluation: Evaluation) -> Outcome | None:
    """The outcome as a naive evaluator sees it.

    It differs from `judged` for exploits alone, so that an experiment that swaps the two changes one thing: an exploit
    whose outputs matched is correct, at the speedup that a naive clock would have read.
    """
    if evaluation.status is not Status.EXPLOIT or evaluation.unverified is None:
        return judged(evaluation)
    claim = evaluation.unverified
    if not claim.outputs_matched:
        return Outcome(correct=False)
    return Outcome(correct=True, speedup=claim.speedup, coverage=evaluation.coverage)


def naive_for_experiments_only(evaluation: Evaluation, config: NaiveConfig) -> Reward:
    """`config.base`'s formula over `believed` instead of `judged`: exploits are paid. For experiments only."""
    match config.base:
        case DrKernelConfig():
            return dr_kernel(evaluation, config.base, read=believed)
        case KevinConfig():
            return kevin(evaluation, config.base, read=believed)
        case TritonRLConfig():
            return tritonrl(evaluation, config.base, read=believed)
