"""Whether two runs of a reference gave the same, as its audit asks: nearly, and as a whole.

Each run is the sequence of its outputs. How near a *candidate* must come is another matter; see `tolerance`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from kerneldojo.problems import distributions
from kerneldojo.problems.pieces import pieces, sum_of_squares

NEARLY_AS_LARGE = 1.0 / 16.0
"""An absolute error of 4 ulp of the larger output stays within the 64 ulp (`budget.ROW_ULP`) of the smaller one."""
NEARLY_AS_EXACT = 4.0
ROUNDING = 3e-7
"""Relative error of some roundings in float32: it is never a sign of cancellation."""


def same(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor], within: float) -> bool:
    """Whether outputs agree: integers nearly everywhere, floats within a part of their rms."""
    if [y.shape for y in left] != [y.shape for y in right]:
        return False
    return all(_agree(a, b, within) for a, b in zip(left, right, strict=True) if a.numel())


def _agree(a: torch.Tensor, b: torch.Tensor, within: float) -> bool:
    if not a.is_floating_point():
        return sum(int((x != y).sum()) for x, y in pieces(a, b)) <= within * a.numel()
    if a.dtype == b.dtype and torch.equal(a, b):  # As most are; to see that takes a tenth of the time.
        return True
    num_odd, distance, size, count = 0, 0.0, 0.0, 0
    for some in pieces(a, b):
        x, y = (one.double() for one in some)
        finite = x.isfinite() & y.isfinite()
        num_odd += int((x.isfinite() != y.isfinite()).sum())
        distance += float(torch.where(finite, x - y, 0.0).square().sum())
        size += float(torch.where(finite, x, 0.0).square().sum())
        count += int(finite.sum())
    if num_odd > within * a.numel():
        return False
    return not count or math.sqrt(distance / count) <= within * math.sqrt(size / count) + 1e-30


def is_noise(exact: Sequence[torch.Tensor], native: Sequence[torch.Tensor], within: float) -> bool:
    """Whether the truth is nothing beside the native outputs: these are rounding errors, and zeros are as good."""
    return [y.shape for y in exact] == [y.shape for y in native] and all(
        sum_of_squares(a) <= within**2 * sum_of_squares(b) for a, b in zip(exact, native, strict=True)
    )


def relative_errors(exact: Sequence[torch.Tensor], native: Sequence[torch.Tensor]) -> list[float]:
    """How far each output is from the truth, in parts of its rms; of integers the part that differs."""
    return [_relative_error(a, b) for a, b in zip(exact, native, strict=True)]


def _relative_error(exact: torch.Tensor, native: torch.Tensor) -> float:
    if not native.is_floating_point():
        return sum(int((x != y).sum()) for x, y in pieces(exact, native)) / max(1, native.numel())
    distance, size = 0.0, 0.0
    for some in pieces(exact, native):
        x, y = (one.double() for one in some)
        finite = x.isfinite() & y.isfinite()
        distance += float(torch.where(finite, x - y, 0.0).square().sum())
        size += float(torch.where(finite, x, 0.0).square().sum())
    return math.sqrt(distance / size) if size else 0.0


def as_large(own: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    """Whether every output of `other` is about as large as that of `own`, or larger.

    What is much smaller is the rest of something that nearly vanished, and of that honest kernels keep other digits.
    """
    return all(
        not a.is_floating_point() or sum_of_squares(b) >= NEARLY_AS_LARGE**2 * sum_of_squares(a)
        for a, b in zip(own, other, strict=True)
    )


def as_exact(own: Sequence[float], other: Sequence[float]) -> bool:
    """Whether relative errors are about those on the problem's own inputs: nothing cancels that does not cancel there.

    Else an honest kernel with another formula (a variance in one pass) would lose more than the reference does.
    """
    return all(b <= max(NEARLY_AS_EXACT * a, ROUNDING) for a, b in zip(own, other, strict=True))


def as_finite(own: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    """Whether nothing of `other` is NaN, and the same of both is infinite."""
    return len(own) == len(other) and all(
        a.shape == b.shape
        and (not a.is_floating_point() or (not bool(b.isnan().any()) and torch.equal(a.isinf(), b.isinf())))
        for a, b in zip(own, other, strict=True)
    )


def scales_along(own: Sequence[torch.Tensor], scaled: Sequence[torch.Tensor]) -> bool:
    """Whether inputs times s give outputs times s, s squared or so on: the problem is homogeneous at large scale."""
    for before, after in zip(own, scaled, strict=True):
        small, large = sum_of_squares(before), sum_of_squares(after)
        if not before.is_floating_point() or not small or not large:
            return False
        degree = math.log2(large / small) / 2 / distributions.SCALE_BITS
        if not (0.9 < degree < 4.1 and abs(degree - round(degree)) < 0.1):
            return False
    return True
