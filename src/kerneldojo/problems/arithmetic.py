"""Whose arithmetic an answer was computed in, told by what its errors are like.

Tolerances cannot tell that everywhere. A mean of many products in TF32 may lie within what is allowed in float32, in
one round and not in the next; and the reference that it is then timed against is three times or seven times as slow,
by a toss of a coin (seen on an H200). How large errors are cannot tell it either: a long sum in float32, one term after
the other, errs as much as averaged products in TF32. But errors have a cause. Operands that are cut to TF32 leave the
very errors that the reference has when its operands are cut. Operands that are rounded are off the other way where more
than half is cut off, so that errors are against those, by a quarter in theory. Float32's have to do with neither.

So an answer is said to be in TF32 only on such evidence. Where all terms are positive, rounding leaves none; there
tolerances tell, or nobody does.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import torch

FEWEST = 32
"""Elements of an output: one number is near the truth by chance."""
SAMPLED = 1 << 16
"""Elements of an output that are looked at, about: reading them is next to nothing beside reading all."""
APART = 16.0
"""So many times as large as in float32 errors in TF32 must be, to tell anything."""
CUT = 0.5
"""The part of the errors that cut operands leave which an answer must have: it is 1 for one that was computed so."""
AGAINST, LARGE = 0.1, 0.25
"""How far an answer's errors must be against those, and how large beside them, to be those of rounded operands. In
simulations they were against them by 0.16 to 0.31 and 0.38 to 0.62 as large; long sums in float32 0.08 and 0.22."""
SURE = 4.0
"""In standard deviations of a correlation between errors that have nothing to do with each other."""
ROUNDING = 2.0**-25
"""Of float32, next to the size of the truth: a native answer that is exact by chance is taken to err by so much."""
OTHER_ORDER = 2.0**-22
"""By so much sums in another order differ from a native answer that has to stand for the truth."""
JUMP = 3.0
"""Who computes in TF32 after float32 errs by so many times more then; by honest doing nobody."""


def error_moments(
    truth: torch.Tensor | None, native: torch.Tensor, coarse: torch.Tensor, got: torch.Tensor
) -> torch.Tensor | None:
    """What errors of an answer, of the native one and of that in TF32 are like; None where nobody looks.

    Args:
        truth: in float64; None where nobody has it, and the native answer stands for it.
        native, coarse, got: of its shape, all on one device.

    Returns:
        (5,) float64 on that device, not waited for: the mean squares of the three, and the mean product of the first
        with the third, in units of the truth's own mean square; and of how many elements.
    """
    right = native if truth is None else truth
    if right.numel() < FEWEST:
        return None
    step = (right.numel() // SAMPLED) | 1  # Odd, so that it meets every column of most rows.
    start = secrets.randbelow(step)  # Nobody may know which are looked at.
    right, *others = (_sampled(tensor, start, step) for tensor in (right, got, native, coarse))
    errors = (torch.stack(others) - right).nan_to_num(0.0, 0.0, 0.0)
    size = right.nan_to_num(0.0, 0.0, 0.0).square().mean()
    mine, _, theirs = errors
    moments = torch.stack([*errors.square().mean(dim=1), (mine * theirs).mean()])
    found = moments / size.clamp(min=torch.finfo(torch.float32).tiny)
    if truth is None:
        found[1] = OTHER_ORDER**2
    return torch.cat([found, found.new_full((1,), right.numel())])


def _sampled(tensor: torch.Tensor, start: int, step: int) -> torch.Tensor:
    """Every so many elements, by their places in the shape; of one that lies turned round there is no copy."""
    if tensor.is_contiguous():
        return tensor.view(-1)[start::step].double()
    return tensor.take(torch.arange(start, tensor.numel(), step, device=tensor.device)).double()


@dataclass(frozen=True)
class _Errors:
    """Of answers, next to the truth: root mean squares, and what they have to do with each other."""

    mine: float = 0.0
    native: float = ROUNDING
    coarse: float = 0.0
    product: float = 0.0
    """Of mine and coarse, in the mean."""
    num: float = 1.0
    """Elements."""

    @classmethod
    def of(cls, found: Sequence[torch.Tensor]) -> _Errors:
        """Of all that `error_moments` found; none at all where nobody looked."""
        if not found:
            return cls()
        all_of_them = torch.stack(list(found))
        *squares, product = all_of_them[:, :4].mean(dim=0).tolist()
        mine, native, coarse = map(math.sqrt, squares)
        return cls(mine, max(native, ROUNDING), coarse, product, float(all_of_them[:, 4].sum()))

    @property
    def is_coarse(self) -> bool:
        """Whether they are those of operands that were cut, or rounded."""
        if self.coarse < APART * self.native:
            return False
        if self.product >= CUT * self.coarse**2:
            return True
        against = max(AGAINST, SURE / math.sqrt(self.num)) * self.mine * self.coarse
        return self.mine >= LARGE * self.coarse and self.product <= -against


def is_coarse(found: Sequence[torch.Tensor]) -> bool:
    """Whether answers were computed in TF32, by all that `error_moments` found; False where that cannot be told."""
    return _Errors.of(found).is_coarse


def is_coarser(found: Sequence[torch.Tensor], before: Sequence[torch.Tensor], *, is_told: bool = False) -> bool:
    """Whether answers were computed in TF32, and others before in float32.

    Args:
        found: of the ones.
        before: of the others, on inputs of the same kind: on other kinds everybody may err by more, whatever he does.
        is_told: whether tolerances tell that the ones were. Operands that are rounded leave little of an error where
            all are positive, and one that is cut much: there nothing else may tell it.
    """
    if not before or not found:
        return False
    now, then = _Errors.of(found), _Errors.of(before)
    if then.is_coarse or not (is_told or now.is_coarse):
        return False
    return now.mine / now.native > JUMP * max(then.mine, ROUNDING) / then.native
