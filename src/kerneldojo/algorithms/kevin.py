"""Kevin's advantages (arXiv 2507.11948, section 3): all turns of all trajectories of a task in one pool.

With m trajectories of n turns the pool has m · n returns, and each is normalised by its mean and deviation. Pooling
needs few trajectories, but a late turn, which has less left to earn, is compared with early ones; and the baseline of a
turn contains its trajectory's *other* turns, which depend on its own action. So the estimate is biased even beyond the
factor 1 - 1/N of self-inclusion (`tests/algorithms/test_bias.py` shows by how much).
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from kerneldojo.algorithms.baselines import Alone, centred
from kerneldojo.algorithms.groups import Groups
from kerneldojo.algorithms.grpo import EPSILON
from kerneldojo.algorithms.turns import Turns
from kerneldojo.schema import Settings


class KevinConfig(Settings):
    """Settings of Kevin's pooled advantages."""

    type: Literal["kevin"] = "kevin"
    std: bool = True
    """Whether to divide by the pool's standard deviation (divisor size - 1), as the paper does."""
    alone: Alone = "zero"
    """Advantage of a pool's only member."""


def kevin(returns: Tensor, turns: Turns, config: KevinConfig) -> Tensor:
    """A_{i,t} = (G_{i,t} - mean) / (std + 1e-6) over all valid turns of all trajectories of the prompt.

    returns: (n,) return-to-go. Returns (n,).
    """
    groups = Groups.by(turns.prompt, members=turns.valid)
    advantages = centred(returns, groups, config.alone)
    if not config.std:
        return advantages
    return (advantages / (groups.deviation(returns) + EPSILON)).where(groups.size() > 1, advantages)
