"""Whose arithmetic an answer was computed in, told by how far it is from the truth.

Tolerances cannot tell that everywhere. A mean of many products in TF32 may lie within what is allowed in float32, in
one round and not in the next; and the reference that it is then timed against is three times or seven times as slow,
by a toss of a coin (seen on an H200). But next to what the reference itself makes of the same inputs in both, there is
no doubt: products in TF32 leave errors that are tens to thousands of times as large, averaged or not. An answer whose
errors are nearer to those of TF32, in proportion, was computed so. Another order of sums changes them by two or so.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence

import torch

FEWEST = 32
"""Elements of an output: one number is near the truth by chance."""
SAMPLED = 1 << 16
"""Elements of an output that are looked at, about: reading them is next to nothing beside reading all."""
APART = 16.0
"""So many times as large errors in TF32 must be: else what is between the two may be either."""
ROUNDING = 2.0**-25
"""Of float32, next to the size of the truth: a native answer that is exact by chance is taken to err by so much."""
OTHER_ORDER = 2.0**-22
"""By so much sums in another order differ from a native answer that has to stand for the truth."""
JUMP = 3.0
"""Who computes in TF32 after float32 errs by so many times more then; by honest doing nobody."""


def squared_errors(
    truth: torch.Tensor | None, native: torch.Tensor, coarse: torch.Tensor, got: torch.Tensor
) -> torch.Tensor | None:
    """Mean squared errors of an answer, of the native one and of that in TF32; None where nobody looks.

    Args:
        truth: in float64; None where nobody has it, and the native answer stands for it.
        native, coarse, got: of its shape, all on one device.

    Returns:
        (3,) float64 on that device, in units of the truth's own mean square; not waited for.
    """
    right = native if truth is None else truth
    if right.numel() < FEWEST:
        return None
    step = (right.numel() // SAMPLED) | 1  # Odd, so that it meets every column of most rows.
    start = secrets.randbelow(step)  # Nobody may know which are looked at.
    right, *others = (_sampled(tensor, start, step) for tensor in (right, got, native, coarse))
    errors = (torch.stack(others) - right).nan_to_num(0.0, 0.0, 0.0)
    size = right.nan_to_num(0.0, 0.0, 0.0).square().mean()
    found = errors.square().mean(dim=1) / size.clamp(min=torch.finfo(torch.float32).tiny)
    if truth is None:
        found[1] = OTHER_ORDER**2
    return found


def _sampled(tensor: torch.Tensor, start: int, step: int) -> torch.Tensor:
    """Every so many elements, by their places in the shape; of one that lies turned round there is no copy."""
    if tensor.is_contiguous():
        return tensor.view(-1)[start::step].double()
    return tensor.take(torch.arange(start, tensor.numel(), step, device=tensor.device)).double()


def is_coarse(found: Sequence[torch.Tensor]) -> bool:
    """Whether answers were computed in TF32, by all that `squared_errors` found; False where that cannot be told."""
    mine, native, coarse = _errors(found)
    return coarse >= APART * native and mine > math.sqrt(native * coarse)


def is_coarser(found: Sequence[torch.Tensor], before: Sequence[torch.Tensor], *, is_told: bool = False) -> bool:
    """Whether answers were computed in TF32, and others before in float32.

    Args:
        found: of the ones.
        before: of the others, on inputs of the same kind: on other kinds everybody may err by more, whatever he does.
        is_told: whether tolerances tell that the ones were. Operands that are rounded leave little of an error where
            all are positive, and one that is cut much: there nothing else may tell it.
    """
    if not before or not found or not (is_told or is_coarse(found)):
        return False
    (mine, native, _), (mine_before, native_before, _) = _errors(found), _errors(before)
    return not is_coarse(before) and mine / native > JUMP * max(mine_before, ROUNDING) / native_before


def _errors(found: Sequence[torch.Tensor]) -> tuple[float, float, float]:
    """Of the answer, of the native one, and of that in TF32; nothing at all where nobody looked."""
    if not found:
        return 0.0, ROUNDING, 0.0
    mine, native, coarse = (math.sqrt(one) for one in torch.stack(list(found)).mean(dim=0).tolist())
    return mine, max(native, ROUNDING), coarse
