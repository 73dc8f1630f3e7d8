"""TRLOO, turn-level REINFORCE leave-one-out (Dr. Kernel, Eq. 5): the default.

Turn t of a trajectory is compared with turn t of the other trajectories for the same prompt that got so far. One
baseline is subtracted from the return-to-go once. (Centring each turn's *reward* and summing over turns looks similar,
but subtracts a number of baselines that depends on when the trajectory itself stopped, and is biased.)

What is promised: summed over turns, the expected gradient is exactly that of the expected return, for every mixture of
N ≥ 2, when nothing is filtered or rejected afterwards. (A lone member keeps the promise only with `alone="return"`;
without an advantage its share of the gradient is lost.) `tests/algorithms/test_bias.py` shows it by enumeration.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from kerneldojo.algorithms.baselines import Alone, leave_one_out
from kerneldojo.algorithms.groups import Groups
from kerneldojo.algorithms.turns import Turns
from kerneldojo.schema import Settings


class TRLOOConfig(Settings):
    """Settings of turn-level leave-one-out."""

    type: Literal["trloo"] = "trloo"
    alone: Alone = "zero"
    """Advantage of a group's only member; verl's `rloo` and the released code of Dr. Kernel use `return`."""


def trloo(returns: Tensor, turns: Turns, config: TRLOOConfig) -> Tensor:
    """A_{i,t} = G_{i,t} - (1/(N_t-1)) Σ_{j≠i} G_{j,t} = N_t/(N_t-1) · (G_{i,t} - mean_t).

    N_t counts the valid trajectories of the prompt that have a turn t. returns: (n,) return-to-go. Returns (n,).
    """
    return leave_one_out(returns, Groups.by(turns.prompt, turns.turn, members=turns.valid), config.alone)
