"""Many short tensors held against their budgets at once, such as the running statistics of a network's norms.

`tolerance.compare` takes dozens of operations for a tensor, however short, and a network of 121 norms has 242 of them:
on a GPU that was five sixths of what the rounds of such a candidate took. Here all of them lie behind each other, and
each operation is done once. Only that all is well can be seen so; what is wrong with which, `compare` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import torch

from kerneldojo.problems.budget import ELEMENT_FACTOR, FLOOR_IN_UNIT, MIN_ROW, settle_rows
from kerneldojo.problems.tolerance import MIN_FOR_RMS, RMS_LIMIT

MOST_ELEMENTS = 1 << 24
"""Of all of them together; with more their number is not what costs."""


class Vector(NamedTuple):
    """One tensor as it should be, and as it is; all of one shape, `native` and `got` of one type."""

    truth: torch.Tensor
    native: torch.Tensor
    got: torch.Tensor


def are_all_well(vectors: Sequence[Vector], reduction_length: int) -> bool:
    """Whether `compare` is sure to accept each within the budget that its native run alone would make.

    False says nothing: one may be wrong, or is such that it has to be looked at by itself, as where it has several
    rows (`budget`), is empty, or holds what is no number.

    Args:
        vectors: on one device.
        reduction_length: the longest sum in the problem.
    """
    if sum(one.native.numel() for one in vectors) > MOST_ELEMENTS or not all(map(_is_one_row, vectors)):
        return False
    of_kind = sorted(vectors, key=lambda one: str(_kind(one)))
    return all(_are_well(list(some), reduction_length) for _, some in groupby(of_kind, _kind))


def _kind(one: Vector) -> tuple[torch.dtype, torch.dtype]:
    return one.native.dtype, one.truth.dtype


def _is_one_row(one: Vector) -> bool:
    shape = one.native.shape
    is_alike = one.truth.shape == shape == one.got.shape and one.got.dtype == one.native.dtype
    # As long as all dimensions but the first hold fewer elements than a row has, the row is the whole tensor.
    is_row = one.native.numel() > 0 and shape[1:].numel() < MIN_ROW
    return is_alike and is_row and one.native.is_floating_point()


def _are_well(vectors: list[Vector], reduction_length: int) -> bool:
    truth, native, got = (
        torch.cat([each.reshape(-1).double() for each in some]) for some in zip(*vectors, strict=True)
    )
    lengths = torch.tensor([one.native.numel() for one in vectors], device=truth.device)
    owner = torch.repeat_interleave(lengths, output_size=truth.numel())

    def rms(values: torch.Tensor) -> torch.Tensor:
        sums = torch.zeros(len(vectors), dtype=torch.float64, device=truth.device)
        return (sums.index_add_(0, owner, values.square()) / lengths).sqrt()

    size, dtype, oracle = rms(truth), vectors[0].native.dtype, vectors[0].truth.dtype
    absolute, unit, relative = settle_rows(size, rms(native - truth), size, dtype, oracle, reduction_length)
    own = relative * truth.abs()
    error, difference = (native - truth).abs(), (got - truth).abs()
    is_finite = torch.stack([truth, native, got]).isfinite().all()  # Else nothing that follows means anything.
    is_near = (difference <= absolute[owner] + ELEMENT_FACTOR * error + own).all()
    overall = rms(difference / (unit[owner] + FLOOR_IN_UNIT * own))
    is_exact = ((overall <= RMS_LIMIT) | (lengths < MIN_FOR_RMS)).all()
    return bool(is_finite & is_near & is_exact)
