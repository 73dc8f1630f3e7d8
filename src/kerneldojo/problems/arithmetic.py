"""Whose arithmetic an answer was computed in, told by how far it is from the truth.

Tolerances cannot tell that everywhere. A mean of many products in TF32 may lie within what is allowed in float32, in
one round and not in the next; and the reference that it is then timed against is three times or seven times as slow,
by a toss of a coin (seen on an H200). But next to what the reference itself makes of the same inputs in both, there is
no doubt: products in TF32 leave errors that are tens to thousands of times as large, averaged or not. An answer whose
errors are nearer to those of TF32, in proportion, was computed so. Another order of sums changes them by two or so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

SAMPLED = 1 << 16
"""Elements of an output that are looked at, about: reading them is next to nothing beside reading all."""
MOST_COPIED = 1 << 22
"""Elements of an output that lies with holes or turned round; of larger ones nothing is known."""
APART = 16.0
"""So many times as large errors in TF32 must be: else what is between the two may be either."""
ROUNDING = 2.0**-25
"""Of float32, next to the size of the truth: a native answer that is exact by chance is taken to err by so much."""


def squared_errors(
    truth: torch.Tensor, native: torch.Tensor, coarse: torch.Tensor, got: torch.Tensor
) -> torch.Tensor | None:
    """Mean squared errors of an answer, of the native one and of that in TF32; None where nobody looks.

    Args:
        truth, native, coarse, got: of one shape and on one device; `truth` in float64.

    Returns:
        (3,) float64 on their device, in units of the truth's own mean square; not waited for.
    """
    tensors = (truth, got, native, coarse)
    is_copied = not all(tensor.is_contiguous() for tensor in tensors)
    if not truth.numel() or (is_copied and truth.numel() > MOST_COPIED):
        return None
    step = (truth.numel() // SAMPLED) | 1  # Odd, so that it meets every column of most rows.
    right, *others = (tensor.reshape(-1)[::step].double() for tensor in tensors)
    errors = (torch.stack(others) - right).nan_to_num(0.0, 0.0, 0.0)
    size = right.nan_to_num(0.0, 0.0, 0.0).square().mean()
    return errors.square().mean(dim=1) / size.clamp(min=torch.finfo(torch.float32).tiny)


def is_coarse(found: Sequence[torch.Tensor]) -> bool:
    """Whether answers were computed in TF32, by all that `squared_errors` found; False where that cannot be told."""
    if not found:
        return False
    mine, native, coarse = (math.sqrt(one) for one in torch.stack(list(found)).mean(dim=0).tolist())
    native = max(native, ROUNDING)
    return coarse >= APART * native and mine > math.sqrt(native * coarse)
