"""Answers that need no work. A problem that accepts one of them teaches nothing.

Each answer gives one tensor a seed, to be compared with that seed's truth. Knowledge that a cheat could carry along
from earlier draws (constants, means) is taken from all seeds together, but never from the one being judged where
leaving it out is possible.

Outputs may fill a good part of a GPU: so answers are made when they are asked for, and whatever is done to their
elements in float64 is done piece by piece.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch

from kerneldojo.problems.budget import Budget
from kerneldojo.problems.pieces import PIECE, pieces
from kerneldojo.problems.tolerance import compare_if_well

NEARLY = 0.01
"""An answer within so small a part of the truth's rms counts as accepted, whatever the tolerance says: the output
hardly depends on the input, and half-precision noise would hide that it was not computed."""
NEARLY_CONSTANT = 0.005
"""The same for one number for all elements. A product of positive numbers comes near one by itself: sums of 8,192 lie
within 0.97 % of their mean, which is ten times what is allowed; sums of 524,288 within 0.12 %."""
CONSTANT = "a constant"
Answer = Callable[[int], torch.Tensor]
"""By the number of the seed."""


def answers(
    natives: Sequence[torch.Tensor],
    inputs: Sequence[Sequence[torch.Tensor]],
    others: Answer | None = None,
) -> Iterator[tuple[str, Answer]]:
    """Yield names and answers for one output.

    Args:
        natives: the reference's output for every seed.
        inputs: the input tensors for every seed.
        others: the output of a model with other weights for a seed's inputs; None where there are no weights.
    """
    first = natives[0]
    yield "zeros", lambda place: torch.zeros_like(natives[place])
    for constant in _constants(natives):
        yield CONSTANT, partial(_filled, natives, constant)
    if first.is_floating_point():
        yield "the mean of other seeds", lambda place: _mean_without(natives, place)
    yield "another seed's answer", lambda place: natives[(place + 1) % len(natives)]
    for number, x in enumerate(inputs[0]):
        if x.shape == first.shape and x.dtype == first.dtype:
            yield f"input {number}", partial(_input, inputs, number)
    if others is not None:
        yield "other weights", others


def _filled(natives: Sequence[torch.Tensor], constant: float, place: int) -> torch.Tensor:
    return torch.full_like(natives[place], constant)


def _input(inputs: Sequence[Sequence[torch.Tensor]], number: int, place: int) -> torch.Tensor:
    return inputs[place][number]


def _constants(natives: Sequence[torch.Tensor]) -> list[float]:
    """Return the constants that come nearest to all answers in the mean, at most, and most often."""
    if not natives[0].is_floating_point():
        values = torch.cat([native.flatten() for native in natives])
        return [float(values.flatten().long().mode().values)] if values.numel() else []
    count, total, lowest, highest = 0, 0.0, math.inf, -math.inf
    for (piece,) in (one for native in natives for one in pieces(native)):
        finite = piece[piece.isfinite()].double()
        if finite.numel():
            count, total = count + finite.numel(), total + float(finite.sum())
            lowest, highest = min(lowest, float(finite.min())), max(highest, float(finite.max()))
    if not count:
        return []
    return sorted({total / count, _median(natives), (lowest + highest) / 2})


def _median(natives: Sequence[torch.Tensor]) -> float:
    """Of the finite elements; of evenly spaced ones where there are very many."""
    every = max(1, sum(native.numel() for native in natives) // PIECE)
    values = torch.cat([native.flatten()[::every] for native in natives])
    values = values[values.isfinite()]
    return float(values.double().median()) if values.numel() else 0.0


def _mean_without(natives: Sequence[torch.Tensor], place: int) -> torch.Tensor:
    mean = torch.empty_like(natives[place], memory_format=torch.contiguous_format)
    rest = [native for number, native in enumerate(natives) if number != place]
    start = 0
    for some in pieces(*rest):
        mean.view(-1)[start : start + len(some[0])] = torch.stack(some).double().mean(dim=0).to(mean.dtype)
        start += len(some[0])
    return mean


@dataclass
class Truth:
    """An output of one draw, against which trivial answers are held."""

    values: torch.Tensor
    budget: Budget

    def accepts(self, answer: torch.Tensor, nearly: float = NEARLY) -> bool:
        """Whether an answer passes for the truth, or comes too near it to tell: within that part of its rms."""
        if compare_if_well(self.values, answer, self.budget) is not None:
            return True
        if self.budget.exact or not self.values.numel():
            return False
        distance, most = 0.0, nearly**2 * self._squares
        for some in pieces(self.values, answer):
            truth, given = (one.double() for one in some)
            finite = truth.isfinite()
            if not torch.equal(finite, given.isfinite()):
                return False
            distance += float(torch.where(finite, given - truth, 0.0).square().sum())
            if distance > most:  # Nearly all are far off from the beginning.
                return False
        return True

    def accepts_loosely(self, answer: torch.Tensor) -> bool:
        """Whether `torch.allclose` at 1e-2 absolute and relative, the habit of other evaluators, takes the answer."""
        return all(
            torch.allclose(given.double(), truth.double(), rtol=1e-2, atol=1e-2)
            for truth, given in pieces(self.values, answer)
        )

    @cached_property
    def _squares(self) -> float:
        """Their sum, of what is finite."""
        wide = (piece.double() for (piece,) in pieces(self.values))
        return sum(float(torch.where(piece.isfinite(), piece, 0.0).square().sum()) for piece in wide)
