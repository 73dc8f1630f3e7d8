"""New content for timed inputs, made from a few drawn sets, so that no call meets what an earlier one has met.

Whoever keeps answers by what they belong to must not find one. Drawing all content from the problem would cost more
than the timing, and what an input may be is known to the problem alone; so each is changed in a way that leaves what
can be seen of its structure as it is:

* `rotate`: elements move on by a secret distance, where their order means nothing.
* `turn`: so do rows, and elements within all rows alike, where each row is a distribution.
* `swing`: rows and columns of a symmetric matrix move on by the same distance.
* `mix`: each element is one of two drawn sets' at its place, by secret bits: zeros stay where they are.
* `choose`: a drawn set's as it is. Indices, flags and what is sorted may belong to other inputs of their set.

`docs/trust.md` says what `choose` leaves open.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from kerneldojo.devices.cuda.rotation import WORDS, rotate
from kerneldojo.problems.distributions import has_few_values, is_probability, is_structural

Way = Literal["rotate", "turn", "swing", "mix", "choose"]
FEW_ZEROS = 1e-3
"""The share of zeros up to which they mean nothing."""
ROUNDING = 1e-3
"""Of its largest element: by so much a symmetric matrix may differ from its transpose."""


@dataclass(frozen=True)
class Recipe:
    """What one set is made of; secret."""

    base: int
    """The drawn set."""
    other: int
    """Another one, for what is mixed; the same where there is one alone."""
    distances: tuple[int, ...]
    """Of each tensor: by how many elements or rows to move; see `most_distance`."""
    seed: int
    """Of the bits of what is mixed."""


def draw_recipe(num_bases: int, most: Sequence[int]) -> Recipe:
    """Choose secretly.

    Args:
        num_bases: drawn sets.
        most: of each tensor, as `most_distance` has it.
    """
    base = secrets.randbelow(num_bases)
    other = (base + 1 + secrets.randbelow(num_bases - 1)) % num_bases if num_bases > 1 else base
    return Recipe(base, other, tuple(map(secrets.randbelow, most)), secrets.randbits(63))


def most_distance(way: Way, tensor: torch.Tensor) -> int:
    """How many distances there are to choose from."""
    if way == "swing":
        return tensor.shape[-1]
    return max(1, tensor.numel()) if way in ("rotate", "turn") else 1


def way_of(drawn: Sequence[torch.Tensor], *, is_only: bool) -> Way:
    """How an input may be changed.

    Args:
        drawn: the input in each drawn set; equal layouts.
        is_only: whether no other tensor is in a set: then none can belong to it.
    """
    tensor = drawn[0]
    if may_shuffle(tensor):
        return "rotate"
    if tensor.numel() < 2 or tensor.dim() == 0 or not _is_dense(tensor) or tensor.is_complex():
        return "choose"
    if has_few_values(tensor):
        return "choose"
    if not tensor.is_floating_point():
        return "rotate" if is_only and _is_unordered(tensor) else "choose"
    if not all(bool(torch.isfinite(one).all()) for one in drawn):
        return "choose"
    zeros = [one == 0 for one in drawn]
    if int(zeros[0].sum()) > FEW_ZEROS * tensor.numel():
        is_plain = not any(is_probability(one) or _is_symmetric(one) for one in drawn) and _is_unordered(tensor)
        are_known = is_only or all(torch.equal(one, zeros[0]) for one in zeros)
        return "mix" if len(drawn) > 1 and is_plain and are_known else "choose"
    if all(map(_is_symmetric, drawn)):
        return "swing"
    return "turn" if all(map(is_probability, drawn)) else "choose"


def may_shuffle(tensor: torch.Tensor) -> bool:
    """Whether moving elements about leaves an input what it is: no labels, no zeros that mean something, no order."""
    if is_structural(tensor) or tensor.dim() == 0:
        return False
    if int((tensor == 0).sum()) > FEW_ZEROS * tensor.numel():
        return False
    return not _is_symmetric(tensor) and _is_unordered(tensor)


def write(target: torch.Tensor, way: Way, bases: Sequence[torch.Tensor], recipe: Recipe, number: int) -> None:
    """Write one input of one set. Asynchronous on a GPU.

    Args:
        target: its memory, viewed as the input is.
        way: as from `way_of`.
        bases: the input in each drawn set, viewed alike.
        recipe: what the set is made of.
        number: of the input in its set.
    """
    distance = recipe.distances[number]
    if way in ("rotate", "choose"):
        rotate(flat(target), flat(bases[recipe.base]), distance)
        return
    words = WORDS[target.element_size()]  # As they are, whatever the type can be reckoned with.
    target, source, other = (one.view(words) for one in (target, bases[recipe.base], bases[recipe.other]))
    if way == "turn":
        rows = source.reshape(-1, source.shape[-1])
        along, across = divmod(distance, source.shape[-1])
        target.copy_(rows.roll((along, across), (0, 1)).view(source.shape))
    elif way == "swing":
        target.copy_(source.roll((distance, distance), (-2, -1)))
    else:
        generator = torch.Generator(source.device).manual_seed(recipe.seed ^ number)
        bits = torch.randint(0, 2, source.shape, generator=generator, device=source.device, dtype=torch.uint8)
        torch.where(bits.bool(), source, other, out=target)


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
    count, rises = int(are_values.sum()), int(((right >= left) & are_values).sum())
    return not count or 0.05 < rises / count < 0.95
