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
from collections.abc import Sequence

import numpy as np
import torch

from kerneldojo.devices.cuda.recipes import COPIED, Kind, Recipe, Way, rotation
from kerneldojo.devices.cuda.rotation import WORDS, flat, rotate
from kerneldojo.problems.distributions import has_few_values, is_probability, is_structural
from kerneldojo.problems.pieces import num_zeros, slabs

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
    if not all(bool(torch.isfinite(slab).all()) for one in drawn for slab in slabs(one)):
        return "choose"
    if num_zeros(tensor) > FEW_ZEROS * tensor.numel():
        is_plain = not any(is_probability(one) or _is_symmetric(one) for one in drawn) and _is_unordered(tensor)
        return "mix" if len(drawn) > 1 and is_plain and (is_only or _have_equal_zeros(drawn)) else "choose"
    if all(map(_is_symmetric, drawn)):
        return "reorder"
    return "permute" if all(map(is_probability, drawn)) else "choose"


def may_shuffle(tensor: torch.Tensor) -> bool:
    """Whether moving elements about leaves an input what it is: no labels, no zeros that mean something, no order."""
    if is_structural(tensor) or tensor.dim() == 0:
        return False
    if num_zeros(tensor) > FEW_ZEROS * tensor.numel():
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


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether each element has a place of its own, without gaps."""
    return len(flat(tensor)) == tensor.numel()


def _is_symmetric(tensor: torch.Tensor) -> bool:
    """Whether it is, but for the rounding of whoever made it (a product with its own transpose)."""
    if tensor.dim() < 2 or tensor.shape[-1] != tensor.shape[-2]:
        return False
    if not tensor.is_floating_point() or tensor.element_size() < 2 or not tensor.numel():
        return torch.equal(tensor, tensor.mT)
    differences = [(slab - other).abs().amax() for slab, other in zip(slabs(tensor), slabs(tensor.mT), strict=True)]
    largest = [slab.abs().amax() for slab in slabs(tensor)]
    return bool(torch.stack(differences).amax() <= ROUNDING * torch.stack(largest).amax())


def _is_unordered(tensor: torch.Tensor) -> bool:
    """Whether neighbours rise and fall by turns, where neither is zero."""
    if tensor.shape[-1] <= 2:
        return True
    found: list[torch.Tensor] = []
    for slab in slabs(tensor):
        left, right = slab[..., :-1], slab[..., 1:]
        are_values = (left != 0) & (right != 0)
        found.append(torch.stack([are_values.sum(), ((right >= left) & are_values).sum()]))
    count, rises = torch.stack(found).sum(dim=0).tolist()
    return not count or 0.05 < rises / count < 0.95
