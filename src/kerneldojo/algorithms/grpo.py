"""GRPO per turn: returns centred on the mean of the group, optionally divided by its standard deviation.

Without the division it is Dr. Kernel's Eq. 3 (and Dr. GRPO's advantage), with it DeepSeekMath's. The division makes
every prompt count alike, however small the differences between its answers are, timing noise included. The mean
contains the sample itself, hence the factor (1 - 1/N) of `baselines`.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from kerneldojo.algorithms.baselines import Alone, centred
from kerneldojo.algorithms.groups import Groups
from kerneldojo.algorithms.turns import Turns
from kerneldojo.schema import Settings

EPSILON = 1e-6
"""Added to a standard deviation before dividing by it."""


class GRPOConfig(Settings):
    """Settings of GRPO per turn."""

    type: Literal["grpo"] = "grpo"
    std: bool = False
    """Whether to divide by the group's standard deviation (divisor N - 1)."""
    alone: Alone = "zero"
    """Advantage of a group's only member, which has no deviation to be divided by."""


def grpo(returns: Tensor, turns: Turns, config: GRPOConfig) -> Tensor:
    """A_{i,t} = G_{i,t} - mean_t, over the N_t valid trajectories with a turn t; with `std`, divided by std_t + 1e-6.

    returns: (n,) return-to-go. Returns (n,).
    """
    groups = Groups.by(turns.prompt, turns.turn, members=turns.valid)
    advantages = centred(returns, groups, config.alone)
    if not config.std:
        return advantages
    return (advantages / (groups.deviation(returns) + EPSILON)).where(groups.size() > 1, advantages)
