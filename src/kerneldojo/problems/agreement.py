"""Whether two runs of a reference gave the same, as its audit asks: nearly, and as a whole.

Each run is the sequence of its outputs. How near a *candidate* must come is another matter; see `tolerance`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from kerneldojo.problems import distributions


def same(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor], within: float) -> bool:
    """Whether outputs agree: integers nearly everywhere, floats within a part of their rms."""
    if [y.shape for y in left] != [y.shape for y in right]:
        return False
    for a, b in zip(left, right, strict=True):
        if not a.numel():
            continue
        if not a.is_floating_point():
            if float((a != b).double().mean()) > within:
                return False
            continue
        finite = a.isfinite() & b.isfinite()
        if float((~finite & (a.isfinite() | b.isfinite())).double().mean()) > within:
            return False
        x, y = a[finite].double(), b[finite].double()
        if x.numel() and float((x - y).square().mean().sqrt()) > within * float(x.square().mean().sqrt()) + 1e-30:
            return False
    return True


def is_noise(exact: Sequence[torch.Tensor], native: Sequence[torch.Tensor], within: float) -> bool:
    """Whether the truth is nothing beside the native outputs: these are rounding errors, and zeros are as good."""
    return [y.shape for y in exact] == [y.shape for y in native] and all(
        float(a.double().square().sum()) <= within**2 * float(b.double().square().sum())
        for a, b in zip(exact, native, strict=True)
    )


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
        small, large = before.double().square().mean().sqrt(), after.double().square().mean().sqrt()
        if not before.is_floating_point() or not float(small) or not float(large):
            return False
        degree = math.log2(float(large) / float(small)) / distributions.SCALE_BITS
        if not (0.9 < degree < 4.1 and abs(degree - round(degree)) < 0.1):
            return False
    return True
