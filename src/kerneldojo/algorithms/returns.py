"""Discounted return-to-go: what a turn is answerable for is what comes from it on.

A first kernel that is wrong but leads to a fast one deserves credit for that; what was earned before a turn does not
depend on it and only adds variance.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from kerneldojo.algorithms.turns import Turns
from kerneldojo.schema import Settings


class ReturnConfig(Settings):
    """How the rewards of later turns count."""

    kind: Literal["sum", "max"] = "sum"
    """`sum`: every later turn counts. `max`: only the best of them (Kevin's alternative, better with few turns)."""
    discount: float = Field(default=1.0, ge=0, le=1)
    """γ for each turn of distance: 1 in Dr. Kernel, 0.4 in Kevin (0.8 with `max`), 0 for a turn's own reward alone."""


def return_to_go(rewards: Tensor, turns: Turns, config: ReturnConfig) -> Tensor:
    """G_{i,t} = Σ_{t' ≥ t} γ^{t'-t} R_{i,t'} (Dr. Kernel, Eq. 2; Kevin, section 3), or max in place of Σ.

    rewards: (n,) floating. Returns (n,). A trajectory with a NaN reward has NaN from that turn backwards, which is the
    truth: mask it with `Turns.without_faulty_trajectories`.
    """
    trajectory = turns.dense_trajectory()
    num_trajectories = int(trajectory.max()) + 1 if len(turns) else 0
    ahead = rewards.new_zeros(num_trajectories)  # the return of the turn after, per trajectory
    continues = torch.zeros(num_trajectories, dtype=torch.bool, device=rewards.device)
    returns = torch.zeros_like(rewards)
    for turn in range(int(turns.turn.max()) if len(turns) else -1, -1, -1):
        rows = (turns.turn == turn).nonzero()[:, 0]
        owners = trajectory[rows]
        later = config.discount * ahead[owners]
        if config.kind == "sum":
            value = rewards[rows] + later
        else:  # the last turn has nothing to be compared with: rewards may be negative
            value = torch.where(continues[owners], torch.maximum(rewards[rows], later), rewards[rows])
        returns[rows] = value
        ahead[owners] = value
        continues[owners] = True
    return returns
