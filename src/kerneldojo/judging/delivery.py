"""How the reference's weights reach the candidate: which of its parameters and buffers is which of the reference's.

Both are constructed under one seed. A candidate that names its parameters as the reference does, or registers them in
the same order, is dealt the reference's. One that does neither may have drawn the very same numbers all the same, in
the order in which the reference draws them. What it has drawn elsewhere (on the host, say, as `torch.Tensor(3, 4)` is)
is dealt to it by size, where there are as many tensors of each.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class Delivery:
    """How the reference's weights reach the candidate."""

    names: list[str]
    """The candidate's own names for the reference's tensors, in the reference's order; empty if layouts differ."""
    needed: bool
    """Whether values differ, so that they have to be delivered."""
    pairs: dict[str, str] = field(default_factory=dict)
    """The candidate's name for each of the reference's tensors."""


def match_states(own: dict[str, torch.Tensor], reference: dict[str, torch.Tensor]) -> Delivery:
    """Pair the candidate's parameters and buffers with the reference's: by name, else by value, by position, by size.

    A pair may differ in shape if the number of elements is the same (a bias of shape `(C,)` held as `(C, 1, 1)`).
    """

    def fits(names: list[str]) -> bool:
        pairs = zip(names, reference.values(), strict=True)
        return all(own[name].numel() == value.numel() for name, value in pairs)

    if all(name in own for name in reference) and fits(list(reference)):
        names = list(reference)
    else:
        names = _by_value(own, reference)
        if not names and len(own) == len(reference):
            names = list(own) if fits(list(own)) else _by_shape(own, reference)
    if not names:
        return Delivery(names=[], needed=bool(reference))
    paired = zip(names, reference.values(), strict=True)
    equal = all(_is_same(own[name], value) for name, value in paired)
    return Delivery(names=names, needed=not equal, pairs=dict(zip(reference, names, strict=True)))


def _is_same(mine: torch.Tensor, value: torch.Tensor) -> bool:
    return mine.numel() == value.numel() and torch.equal(mine.reshape(value.shape).to(value.dtype), value)


def _by_value(own: dict[str, torch.Tensor], reference: dict[str, torch.Tensor]) -> list[str]:
    """The name of that which has drawn the same for each of the reference's tensors, and for those in which nothing is
    drawn, or which were drawn again since, of what is left by shape; none if nothing is the same, or something is left.
    """
    left, pairs = dict(own), dict[str, str]()
    by_digest = {_digest(mine): name for name, mine in own.items()}  # Of equal ones the last: any will do.
    for key, value in reference.items():
        name = None if _is_constant(value) else by_digest.get(_digest(value))
        if name in left and _is_same(own[name], value):
            pairs[key] = name
            del left[name]
    rest = {key: value for key, value in reference.items() if key not in pairs}
    others = _by_shape(left, rest) if pairs else []
    if len(others) < len(rest):
        return []
    pairs |= dict(zip(rest, others, strict=True))
    return [pairs[key] for key in reference] if pairs else []


def _digest(value: torch.Tensor) -> tuple[int, float]:
    """What equal tensors have in common, so that not each has to be held against each."""
    return value.numel(), float(value.flatten().double().sum()) if not value.is_complex() else 0.0


def _is_constant(value: torch.Tensor) -> bool:
    return value.numel() < 2 or bool((value == value.flatten()[0]).all())


def _by_shape(own: dict[str, torch.Tensor], reference: dict[str, torch.Tensor]) -> list[str]:
    """Those of each shape in their order; none unless there are as many of each."""
    mine, theirs = _shapes(own), _shapes(reference)
    if any(len(names) != len(mine.get(shape, ())) for shape, names in theirs.items()):
        return []
    pairs = {key: name for shape, keys in theirs.items() for key, name in zip(keys, mine[shape], strict=True)}
    return [pairs[key] for key in reference]


def _shapes(state: dict[str, torch.Tensor]) -> dict[tuple[int, ...], list[str]]:
    found = dict[tuple[int, ...], list[str]]()
    for name, tensor in state.items():
        found.setdefault(tuple(tensor.shape), []).append(name)
    return found
