"""The two baselines: the mean of the others, and the mean of all.

Policy gradients stay unbiased when a *baseline* is subtracted from the return, provided that the baseline does not
depend on the action it judges. The mean of the *other* rollouts of the same prompt does not. The mean of all rollouts
does, by a share of 1/N, and shrinks the expected gradient to (1 - 1/N) of the truth (Dr. Kernel, Eq. 4, appendix A).
With equal N that is a change of the learning rate. With N varying over turns and prompts, it is another direction.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from kerneldojo.algorithms.groups import Groups

Alone = Literal["zero", "return"]
"""Advantage of a group's only member: `zero` (there is nobody to compare with) or `return` (A = G, no baseline)."""


def leave_one_out(returns: Tensor, groups: Groups, alone: Alone = "zero") -> Tensor:
    """A_i = G_i - (1/(N-1)) Σ_{j≠i} G_j over the members of i's group.

    returns: (n,). Returns (n,), 0 for non-members. `alone="return"` is what verl's `rloo` does.
    """
    size = groups.size()
    others = (groups.total(returns) - returns) / (size - 1).clamp(min=1)
    return _finish(returns, returns - others, groups, alone)


def centred(returns: Tensor, groups: Groups, alone: Alone = "zero") -> Tensor:
    """A_i = G_i - mean of G over all members of i's group, i itself included. returns: (n,). Returns (n,)."""
    return _finish(returns, returns - groups.mean(returns), groups, alone)


def _finish(returns: Tensor, advantages: Tensor, groups: Groups, alone: Alone) -> Tensor:
    nothing = torch.zeros_like(returns)
    single = returns if alone == "return" else nothing
    advantages = torch.where(groups.size() == 1, single, advantages)
    return torch.where(groups.members, advantages, nothing)
