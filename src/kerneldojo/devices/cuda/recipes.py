"""Recipes: what each set of timed inputs is made of, secretly drawn for a round; and what is copied by them.

How an input may be changed at all is found out by looking at what was drawn (`content.ways_of`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import torch

from kerneldojo.devices.cuda import draws
from kerneldojo.devices.cuda.draws import Integers
from kerneldojo.devices.cuda.rotation import Rotation, flat

Way = Literal["rotate", "shift", "permute", "reorder", "mix", "choose"]
COPIED = ("rotate", "shift", "choose")
"""Ways whose content is copied in segments."""
PART = 8
"""One of so many elements of what is rotated is the other set's."""


@dataclass(frozen=True)
class Recipe:
    """What one set is made of; secret."""

    base: int
    """The drawn set."""
    other: int
    """Another one, for what is mixed and for parts; the same where there is one alone."""
    distances: tuple[int, ...]
    """Of each tensor: by how many elements to move."""
    parts: tuple[tuple[int, int], ...]
    """Of each tensor: where the other set's part begins, and where it begins there."""
    seed: int
    """Of the bits of what is mixed, and of new orders."""


@dataclass(frozen=True)
class Recipes:
    """Those of several sets, as arrays with a row for each; what they are of is said at `Recipe`."""

    bases: Integers
    others: Integers
    places: Integers
    """(sets, tensors, 3): a distance, and where a part begins here and there."""
    seeds: Integers

    def __len__(self) -> int:
        return len(self.bases)

    def __iter__(self) -> Iterator[Recipe]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> Recipe:
        places = [(distance, (to, origin)) for distance, to, origin in self.places[index].tolist()]
        distances, parts = zip(*places, strict=True) if places else ((), ())
        return Recipe(int(self.bases[index]), int(self.others[index]), distances, parts, int(self.seeds[index]))

    def put(self, fresh: Recipes) -> None:
        """The first sets have others now."""
        for mine, theirs in zip(self._columns(), fresh._columns(), strict=True):
            mine[: len(fresh)] = theirs

    def rows(self, number: int, kind: Kind, targets: Integers, sources: Integers, words: int) -> Integers:
        """What `rotation` says of an input of each set, as a launch is told of it.

        Args:
            number: of the input in its set.
            kind: the input's.
            targets: addresses of its memory in each set, from the first on.
            sources: those in each drawn set.
            words: of which an element consists.

        Returns:
            (sets, 7): see `devices.cuda.rotation.rows`.
        """
        distances, begins, origins = words * self.places[:, number].T
        own = sources[self.bases]
        other = sources[self.others] if kind.part else own
        ends = begins + words * kind.part
        return np.stack([targets[: len(self)], own, distances, other, begins, ends, origins - begins], axis=1)

    def _columns(self) -> tuple[Integers, ...]:
        return self.bases, self.others, self.places, self.seeds


@dataclass(frozen=True)
class Kind:
    """How one input is made, and how much there is to choose from."""

    way: Way
    count: int
    """Elements in its memory."""
    num_distances: int
    part: int
    """Elements of the other set's part; 0 for none."""

    @classmethod
    def of(cls, way: Way, tensor: torch.Tensor) -> Kind:
        """That of `tensor`, one of those that were drawn."""
        count = len(flat(tensor))
        num_distances = count if way in ("rotate", "shift") else 1
        # Whole numbers may be one of each.
        part = count // PART if way == "rotate" and tensor.is_floating_point() else 0
        return cls(way, count, max(1, num_distances), part)


def draw_recipes(num: int, num_bases: int, kinds: Sequence[Kind]) -> Recipes:
    """Choose secretly, each for itself.

    Args:
        num: sets.
        num_bases: drawn sets.
        kinds: of the inputs of a set.
    """
    rooms = np.array([[kind.num_distances, *[kind.count - kind.part + 1] * 2] for kind in kinds], dtype=np.int64)
    bases = draws.below(num_bases, num)
    others = bases if num_bases == 1 else (bases + 1 + draws.below(num_bases - 1, num)) % num_bases
    places = draws.below(np.tile(rooms.reshape(-1), num), num * rooms.size).reshape(num, len(kinds), 3)
    first: dict[int, int] = {}
    for number, kind in enumerate(kinds):
        if kind.way == "shift":
            places[:, number] = places[:, first.setdefault(kind.count, number)]
    return Recipes(bases, others, places, draws.below(1 << 53, num))


def segments(recipe: Recipe, number: int, kind: Kind) -> Iterator[tuple[slice, int, slice]]:
    """What `rotation` writes, for who looks without copying: where, of which drawn set, and where in it; without gaps.

    Args:
        recipe: what the set is made of.
        number: of the input in its set.
        kind: the input's.
    """
    distance, (begin, source) = recipe.distances[number], recipe.parts[number]
    end = begin + kind.part
    ends = sorted({0, distance, begin, end, kind.count})
    for start, stop in pairwise(ends):
        is_part = begin <= start < end
        origin = start - begin + source if is_part else (start - distance) % kind.count
        yield slice(start, stop), recipe.other if is_part else recipe.base, slice(origin, origin + stop - start)


def rotation(
    target: torch.Tensor, kind: Kind, sources: Sequence[torch.Tensor], recipe: Recipe, number: int
) -> Rotation:
    """What is rotated, shifted or chosen, as one rotation.

    Args:
        target: the input's memory, flat.
        kind: the input's.
        sources: the input in each drawn set, flat.
        recipe: what the set is made of.
        number: of the input in its set.
    """
    other = sources[recipe.other] if kind.part else None
    distance, part = recipe.distances[number], recipe.parts[number]
    return Rotation(target, sources[recipe.base], distance, other, *part, kind.part)
