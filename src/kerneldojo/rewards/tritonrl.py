"""TritonRL's rewards (arXiv 2510.17891): speed is credited to the plan, correctness to the code.

A fast kernel is fast because of what was decided (tiling, fusion), and right because of how it was written down. So
the hierarchical reward decomposition gives the two kinds of tokens a reward each; `algorithms.hrd` does the rest.

The paper's `valid` is a linter and a language model that reads the answer. Ours is the verdict itself: not an exploit,
and its own kernels cause the answer. Both hold exactly for status `passed`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import Field

from kerneldojo.rewards.outcome import Outcome, judged
from kerneldojo.rewards.reward import Reward, masked
from kerneldojo.schema import Evaluation, Settings


class TritonRLConfig(Settings):
    """Settings of TritonRL's rewards; the defaults are the paper's."""

    type: Literal["tritonrl"] = "tritonrl"
    speedup_cap: float = Field(default=2.0, gt=0)
    """Speedups above this are paid as this."""
    beta: float = Field(default=0.3, ge=0, le=1)
    """Weight of correctness in the uniform baseline, which pays all tokens alike (0.3 was the best one reported)."""


PAPER = TritonRLConfig()
"""The paper's settings."""


def tritonrl(
    evaluation: Evaluation,
    config: TritonRLConfig = PAPER,
    read: Callable[[Evaluation], Outcome | None] = judged,
) -> Reward:
    """Both schemes of the paper (section on hierarchical reward decomposition) at once.

    - `code`  = R_correct = valid · correct                     in {0, 1}
    - `plan`  = R_speedup = valid · min(speedup, 2.0) · correct in [0, 2]
    - `value` = beta · R_correct + (1 - beta) · R_speedup, the uniform baseline, also for ranking and logs

    The weight alpha between plan and code belongs to the loss, not to the reward: see `algorithms.hrd`.
    A correct answer that was not timed has R_speedup = 0.
    """
    outcome = read(evaluation)
    if outcome is None:
        return masked(evaluation)
    code = float(outcome.correct)
    plan = min(outcome.speedup, config.speedup_cap) if outcome.correct and outcome.speedup is not None else 0.0
    parts = {"correct": config.beta * code, "speedup": (1 - config.beta) * plan}
    return Reward(value=sum(parts.values()), plan=plan, code=code, parts=parts)
