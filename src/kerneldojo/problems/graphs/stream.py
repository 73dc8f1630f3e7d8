"""Random choices that are the same for ever: SHA-256 of a name and a counter, on any machine and any Python."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from kerneldojo.schema import content_hash

Item = TypeVar("Item")


class Stream:
    """A stream of choices, decided by its name alone."""

    def __init__(self, *name: str | int) -> None:
        self._name = tuple(str(part) for part in name)
        self._count = 0

    def uniform(self) -> float:
        """A number from [0, 1)."""
        self._count += 1
        return int(content_hash("stream", *self._name, str(self._count))[:13], 16) / 16**13

    def below(self, limit: int) -> int:
        """A whole number from 0 to `limit` - 1."""
        return int(self.uniform() * limit)

    def choose(self, items: Sequence[Item]) -> Item:
        """One of `items`."""
        return items[self.below(len(items))]

    def weighted(self, weights: dict[Item, float]) -> Item:
        """A key, as likely as its weight says."""
        left = self.uniform() * sum(weights.values())
        for item, weight in weights.items():
            left -= weight
            if left < 0:
                return item
        return list(weights)[-1]


def normal_draws(count: int, name: str) -> list[float]:
    """`count` numbers from the standard normal distribution, the same for ever (Box and Muller)."""
    stream = Stream("normal", name)
    values: list[float] = []
    while len(values) < count:
        radius, angle = math.sqrt(-2.0 * math.log(1.0 - stream.uniform())), 2.0 * math.pi * stream.uniform()
        values += [radius * math.cos(angle), radius * math.sin(angle)]
    return values[:count]
