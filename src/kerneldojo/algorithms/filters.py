"""A filter on turns that Dr. Kernel's released code applies and its paper does not mention. Off by default.

A filter that looks at a turn's own reward takes away the unbiasedness of leave-one-out: the group that remains depends
on what its members did. (Groups that teach nothing are seen by their advantages: `training.steps.without_dull_groups`.)
"""

from __future__ import annotations

import torch
from torch import Tensor

from kerneldojo.algorithms.turns import Turns


def meaningful_turns(rewards: Tensor, turns: Turns) -> Tensor:
    """Whether a turn is kept: not if it earned nothing (reward ≤ 0) after some earlier turn earned something.

    rewards: (n,). Returns (n,) bool.
    """
    trajectory = turns.dense_trajectory()
    num_trajectories = int(trajectory.max()) + 1 if len(turns) else 0
    first_success = torch.full((num_trajectories,), torch.iinfo(torch.int64).max, device=rewards.device)
    success = rewards > 0
    first_success.scatter_reduce_(0, trajectory[success], turns.turn[success], "amin")
    return success | (turns.turn <= first_success[trajectory])
