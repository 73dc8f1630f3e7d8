"""Kevin's score (arXiv 2507.11948, section 3): a little for being right, the rest for being fast.

The ablations of the paper explain both numbers: with correctness worth 1.0 training plateaus and then declines, with 0
it plateaus; 0.3 gives a policy that is mostly wrong something to climb, and soon matters less than the speedup.

The paper also pays nothing for a source that names operations of `torch.nn`, `try` or `pass`. Here the verdict stands
for these rules: an answer that own kernels do not cause is an exploit. One that leaves a part to the library is paid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import Field

from kerneldojo.rewards.outcome import Outcome, judged
from kerneldojo.rewards.reward import Reward, masked
from kerneldojo.schema import Evaluation, Settings


class KevinConfig(Settings):
    """Settings of Kevin's score; the defaults are the paper's."""

    type: Literal["kevin"] = "kevin"
    correct: float = Field(default=0.3, ge=0)
    """Worth of a correct answer before its speed is looked at."""
    speedup_cap: float | None = Field(default=None, gt=0)
    """Highest speedup that is paid in full; None, as in the paper, for no cap."""


PAPER = KevinConfig()
"""The paper's settings."""


def kevin(
    evaluation: Evaluation,
    config: KevinConfig = PAPER,
    read: Callable[[Evaluation], Outcome | None] = judged,
) -> Reward:
    """S = 0.3 · 1{correct} + (T_baseline / T_kernel) · 1{correct}.

    Unit: none; range 0 to infinity. A correct answer that was not timed gets the first term alone.
    """
    outcome = read(evaluation)
    if outcome is None:
        return masked(evaluation)
    if not outcome.correct:
        return Reward(value=0.0, parts={"correct": 0.0})
    parts = {"correct": config.correct}
    if outcome.speedup is not None:
        parts["speedup"] = min(outcome.speedup, config.speedup_cap or outcome.speedup)
    return Reward(value=sum(parts.values()), parts=parts)
