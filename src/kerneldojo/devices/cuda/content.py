"""New content for timed inputs, made from a few drawn sets, so that no call meets what an earlier one has met.

Whoever keeps answers by what they belong to must not find one. Drawing all content from the problem would cost more
than the timing, and what an input may be is known to the problem alone; so each is changed in a way that leaves what
can be seen of its structure as it is:

* `rotate`: elements move on by a secret distance, where their order means nothing, and a part of them is another drawn
  set's: a norm of all of them is another one, too.
* `shift`: elements of all inputs of equal size move on together, where a problem has whole numbers alone, which may
  belong to one another.
* `permute`: rows, and elements within all rows alike, are put into new orders, where each row is a distribution.
* `reorder`: rows and columns of a symmetric matrix are put into one new order.
* `mix`: each element is one of two drawn sets' at its place, by secret bits: zeros stay where they are.
* `choose`: a drawn set's as it is. Indices, flags and what is sorted may belong to other inputs of their set.

`docs/trust.md` says what `choose` leaves open.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import torch

from kerneldojo.devices.cuda import draws
from kerneldojo.devices.cuda.draws import Integers
from kerneldojo.devices.cuda.rotation import WORDS, Rotation, rotate
from kerneldojo.problems.distributions import has_few_values, is_probability, is_structural

Way = Literal["rotate", "shift", "permute", "reorder", "mix", "choose"]
COPIED = ("rotate", "shift", "choose")
"""Ways whose content is copied in segments."""
PART = 8
"""One of so many elements of what is rotated is the other set's."""
NUMBERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
"""Whole numbers that torch can compare on any device."""
NUM_RANGES = 64
"""Of an input, in which elements may change places; of these one is chosen for each set and round."""
WINDOW = 1 << 14
"""Elements in which a run without zeros is looked for."""
FEW_ZEROS = 1e-3
"""The share of zeros up to which they mean nothing."""
CHANCE_ZEROS = 0.01
"""The share of elements up to which zeros may be chance, where few are in two drawn sets: of [0, 1) in bfloat16 one in
256 is zero, in float32 one in sixteen million. Chance makes as many in each, and puts few into several."""
ROUNDING = 1e-3
"""Of its largest element: by so much a symmetric matrix may differ from its transpose."""


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


def ways_of(drawn: Sequence[Sequence[torch.Tensor]]) -> list[Way]:
    """How each input may be changed.

    Args:
        drawn: the drawn sets; equal layouts.
    """
    are_numbers = not any(tensor.is_floating_point() or tensor.is_complex() for tensor in drawn[0])
    columns = list(zip(*drawn, strict=True))
    return [_way_of(column, is_only=len(columns) == 1, are_numbers=are_numbers) for column in columns]


def _way_of(drawn: Sequence[torch.Tensor], *, is_only: bool, are_numbers: bool) -> Way:
    """How an input may be changed.

    Args:
        drawn: the input in each drawn set.
        is_only: whether no other tensor is in a set: then none can belong to it.
        are_numbers: whether all are whole numbers or flags.
    """
    tensor = drawn[0]
    if may_shuffle(tensor):
        return "rotate"
    if tensor.numel() < 2 or tensor.dim() == 0 or not _is_dense(tensor) or tensor.is_complex():
        return "choose"
    if has_few_values(tensor):
        return "choose"
    if not tensor.is_floating_point():
        if not are_numbers or tensor.dtype not in NUMBERS or not _is_unordered(tensor):
            return "choose"
        return "rotate" if is_only else "shift"
    if not all(bool(torch.isfinite(one).all()) for one in drawn):
        return "choose"
    if int((tensor == 0).sum()) > FEW_ZEROS * tensor.numel():
        is_plain = not any(is_probability(one) or _is_symmetric(one) for one in drawn) and _is_unordered(tensor)
        return "mix" if len(drawn) > 1 and is_plain and (is_only or _have_equal_zeros(drawn)) else "choose"
    if all(map(_is_symmetric, drawn)):
        return "reorder"
    return "permute" if all(map(is_probability, drawn)) else "choose"


def may_shuffle(tensor: torch.Tensor) -> bool:
    """Whether moving elements about leaves an input what it is: no labels, no zeros that mean something, no order."""
    if is_structural(tensor) or tensor.dim() == 0:
        return False
    if int((tensor == 0).sum()) > FEW_ZEROS * tensor.numel():
        return False
    return not _is_symmetric(tensor) and _is_unordered(tensor)


def exchangeable(kind: Kind, drawn: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    """Ranges of an input's memory, each its first element and a number of them, in which elements may change places.

    All of what is rotated; a row of distributions; of what is mixed a run without zeros, if those are everywhere in the
    same places. Of these `NUM_RANGES` at most, secretly chosen.
    """
    tensor = drawn[0]
    if kind.way == "rotate":
        return [(0, kind.count)]
    if kind.way == "permute" and tensor.stride(-1) == 1:
        length = tensor.shape[-1]
        rows = secrets.SystemRandom().sample(range(kind.count // length), min(NUM_RANGES, kind.count // length))
        return [(row * length, length) for row in rows]
    if kind.way == "mix" and _have_equal_zeros(drawn):
        starts = (secrets.randbelow(max(1, kind.count - WINDOW + 1)) for _ in range(NUM_RANGES))
        runs = ((start, _longest_run(flat(tensor)[start : start + WINDOW] != 0)) for start in starts)
        return [(start + first, length) for start, (first, length) in runs]
    return []


def _longest_run(are: torch.Tensor) -> tuple[int, int]:
    """Where most in a row are true, and how many."""
    edges = np.diff(np.concatenate([[0], are.cpu().numpy().astype(np.int8), [0]]))
    first, last = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    longest = int(np.argmax(last - first)) if len(first) else 0
    return (int(first[longest]), int(last[longest] - first[longest])) if len(first) else (0, 0)


def write(target: torch.Tensor, kind: Kind, bases: Sequence[torch.Tensor], recipe: Recipe, number: int) -> None:
    """Write one input of one set. Asynchronous on a GPU.

    Args:
        target: its memory, viewed as the input is.
        kind: the input's.
        bases: the input in each drawn set, viewed alike.
        recipe: what the set is made of.
        number: of the input in its set.
    """
    if kind.way in COPIED:
        rotate(rotation(flat(target), kind, [flat(base) for base in bases], recipe, number))
        return
    words = WORDS[target.element_size()]  # As they are, whatever the type can be reckoned with.
    target, source, other = (one.view(words) for one in (target, bases[recipe.base], bases[recipe.other]))
    generator = torch.Generator(source.device).manual_seed(recipe.seed ^ number)
    if kind.way == "permute":
        rows = source.reshape(-1, source.shape[-1])
        along, across = (torch.randperm(size, generator=generator, device=source.device) for size in rows.shape)
        target.copy_(rows[along][:, across].view(source.shape))
    elif kind.way == "reorder":
        order = torch.randperm(source.shape[-1], generator=generator, device=source.device)
        target.copy_(source[..., order, :][..., order])
    else:
        bits = torch.randint(0, 2, source.shape, generator=generator, device=source.device, dtype=torch.uint8)
        torch.where(bits.bool(), source, other, out=target)


def _have_equal_zeros(drawn: Sequence[torch.Tensor]) -> bool:
    """Whether zeros are where they are in all drawn sets alike, but for such as chance makes.

    Others may tell of something else in their set: of a length, or a mask.
    """
    counts = torch.zeros(drawn[0].shape, dtype=torch.uint8, device=drawn[0].device)
    for one in drawn:
        counts += one == 0
    are_some = (counts > 0) & (counts < len(drawn))
    num, num_several = int(are_some.sum()), int((are_some & (counts > 1)).sum())
    if num > CHANCE_ZEROS * len(drawn) * counts.numel() or num_several > num // 16:
        return False
    each = [int((are_some & (one == 0)).sum()) for one in drawn]
    return max(each) - min(each) <= 1 + 3 * math.sqrt(max(each) + min(each))


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """The memory from a tensor's first element to its last."""
    count = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((count if tensor.numel() else 0,), (1,))


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether each element has a place of its own, without gaps."""
    return len(flat(tensor)) == tensor.numel()


def _is_symmetric(tensor: torch.Tensor) -> bool:
    """Whether it is, but for the rounding of whoever made it (a product with its own transpose)."""
    if tensor.dim() < 2 or tensor.shape[-1] != tensor.shape[-2]:
        return False
    if not tensor.is_floating_point() or tensor.element_size() < 2 or not tensor.numel():
        return torch.equal(tensor, tensor.mT)
    return bool((tensor - tensor.mT).abs().amax() <= ROUNDING * tensor.abs().amax())


def _is_unordered(tensor: torch.Tensor) -> bool:
    """Whether neighbours rise and fall by turns, where neither is zero."""
    if tensor.shape[-1] <= 2:
        return True
    left, right = tensor[..., :-1], tensor[..., 1:]
    are_values = (left != 0) & (right != 0)
    count, rises = torch.stack([are_values.sum(), ((right >= left) & are_values).sum()]).tolist()
    return not count or 0.05 < rises / count < 0.95
