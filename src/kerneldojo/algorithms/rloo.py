"""RLOO per trajectory (Ahmadian et al., arXiv 2402.14740): one outcome, one advantage for all of its turns.

The outcome is the return from the first turn on. Trajectories for one prompt are compared as wholes, so a good second
turn pays the first one and the reverse. With one turn it is the same as TRLOO.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from kerneldojo.algorithms.baselines import Alone, leave_one_out
from kerneldojo.algorithms.groups import Groups
from kerneldojo.algorithms.turns import Turns
from kerneldojo.schema import Settings


class RLOOConfig(Settings):
    """Settings of leave-one-out over whole trajectories."""

    type: Literal["rloo"] = "rloo"
    alone: Alone = "zero"
    """Advantage of a prompt's only trajectory."""


def rloo(returns: Tensor, turns: Turns, config: RLOOConfig) -> Tensor:
    """A_{i,t} = G_{i,0} - (1/(N-1)) Σ_{j≠i} G_{j,0} for every turn t of trajectory i, over the prompt's N trajectories.

    returns: (n,) return-to-go. Returns (n,), 0 where the turn itself is not valid.
    """
    first = (turns.turn == 0) & turns.valid
    outcome = leave_one_out(returns, Groups.by(turns.prompt, members=first), config.alone)
    spread = Groups.by(turns.trajectory, members=first).total(outcome)
    return spread.where(turns.valid, returns.new_zeros(()))
