"""Ragged groups: sums and means over rows that share a key, whatever the sizes of the groups.

`Groups.by(prompt, turn, members=valid)` puts rows with equal (prompt, turn) into one group. Rows that are not members
keep their group (so that they can read its mean) but add nothing to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Groups:
    """A partition of n rows. Every method returns (n,): for each row, a statistic of its own group."""

    index: Tensor
    """(n,) int64 in [0, num_groups)."""
    members: Tensor
    """(n,) bool: the rows that count."""
    num_groups: int

    @classmethod
    def by(cls, *keys: Tensor, members: Tensor) -> Groups:
        """Rows whose `keys`, each (n,) int64, all agree are one group; `members` is (n,) bool."""
        unique, index = torch.stack(keys, 1).unique(dim=0, return_inverse=True)
        return cls(index, members, len(unique))

    def size(self) -> Tensor:
        """(n,) int64: how many members the row's group has."""
        ones = self.members.long()
        return torch.zeros(self.num_groups, dtype=torch.int64, device=ones.device).index_add(0, self.index, ones)[
            self.index
        ]

    def total(self, values: Tensor) -> Tensor:
        """(n,): the sum of `values` over the members of the row's group. What non-members hold (NaN) is not read."""
        held = torch.where(self.members, values, torch.zeros_like(values))
        return torch.zeros(self.num_groups, dtype=values.dtype, device=values.device).index_add(0, self.index, held)[
            self.index
        ]

    def mean(self, values: Tensor) -> Tensor:
        """(n,): the mean of `values` over the members of the row's group; 0 for a group without members."""
        return self.total(values) / self.size().clamp(min=1)

    def deviation(self, values: Tensor) -> Tensor:
        """(n,): the standard deviation over the members of the row's group, divisor size - 1; 0 below two members."""
        squares = self.total((values - self.mean(values)).square())
        return (squares / (self.size() - 1).clamp(min=1)).sqrt()
