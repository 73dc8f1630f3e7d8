"""Which turn of which trajectory each sample is: the index that every algorithm here works on.

A policy answers a prompt m times, and each answer is a *trajectory* of several *turns*: kernel, feedback, better
kernel. Each turn is one training sample. Trajectories end at different turns and groups differ in size, so nothing is
padded or reshaped: n samples are n rows, and three columns of integers say where each belongs. A turn that never
happened has no row. It is absent, not zero.

    prompt      0 0 0 0 0 1 1        # (n,) which problem
    trajectory  0 0 0 1 1 2 2        # (n,) which attempt, unique over all prompts
    turn        0 1 2 0 1 0 1        # (n,) counted from 0 without gaps
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Turns:
    """The place of each of n samples. Raises ValueError where the columns contradict each other."""

    prompt: Tensor
    """(n,) int64: the prompt that the trajectory started from; equal ids are compared with each other."""
    trajectory: Tensor
    """(n,) int64: the trajectory, with ids unique over all prompts."""
    turn: Tensor
    """(n,) int64: 0 for the first turn of a trajectory, without gaps."""
    valid: Tensor
    """(n,) bool: whether its reward is known (False: a fault of ours, to be masked)."""

    def __post_init__(self) -> None:
        columns = {"prompt": self.prompt, "trajectory": self.trajectory, "turn": self.turn}
        for name, column in columns.items():
            if column.dim() != 1 or column.dtype != torch.int64 or len(column) != len(self.turn):
                raise ValueError(f"{name} must be int64 of shape ({len(self.turn)},)")
        if self.valid.shape != self.turn.shape or self.valid.dtype != torch.bool:
            raise ValueError(f"valid must be bool of shape ({len(self.turn)},)")
        trajectory, sizes = self._dense_trajectory()
        seen = torch.stack((trajectory, self.turn), 1).unique(dim=0)
        if len(seen) != len(self.turn) or bool(((self.turn < 0) | (self.turn >= sizes[trajectory])).any()):
            raise ValueError("the turns of a trajectory must be 0, 1, 2, ... without gaps or repeats")
        if len(torch.stack((trajectory, self.prompt), 1).unique(dim=0)) != len(sizes):
            raise ValueError("a trajectory belongs to one prompt; use trajectory ids unique over all prompts")

    @classmethod
    def of(
        cls,
        prompt: Sequence[int],
        trajectory: Sequence[int],
        turn: Sequence[int],
        valid: Sequence[bool] | None = None,
    ) -> Turns:
        """From plain lists of one length; all valid where `valid` is not given."""
        mask = [True] * len(turn) if valid is None else list(valid)
        return cls(
            torch.tensor(list(prompt), dtype=torch.int64),
            torch.tensor(list(trajectory), dtype=torch.int64),
            torch.tensor(list(turn), dtype=torch.int64),
            torch.tensor(mask, dtype=torch.bool),
        )

    def __len__(self) -> int:
        return len(self.turn)

    def dense_trajectory(self) -> Tensor:
        """(n,) int64: the trajectory as an index from 0 to the number of trajectories - 1."""
        return self._dense_trajectory()[0]

    def with_valid(self, valid: Tensor) -> Turns:
        """The same turns with another mask, (n,) bool."""
        return replace(self, valid=valid)

    def without_faulty_trajectories(self) -> Turns:
        """Invalidate every turn of a trajectory in which some turn is invalid.

        A fault of ours at turn t makes the return of every earlier turn unknown, and its later turns continue from a
        feedback that was not the judge's. The trajectory leaves all its groups: no baseline counts it.
        """
        trajectory, sizes = self._dense_trajectory()
        faults = torch.zeros_like(sizes).index_add(0, trajectory, (~self.valid).long())
        return self.with_valid(faults[trajectory] == 0)

    def _dense_trajectory(self) -> tuple[Tensor, Tensor]:
        _, trajectory, sizes = self.trajectory.unique(return_inverse=True, return_counts=True)
        return trajectory, sizes
