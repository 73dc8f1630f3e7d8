"""Answers that need no work. A problem that accepts one of them teaches nothing.

Each answer is a list with one tensor a seed, to be compared with that seed's truth. Knowledge that a cheat could carry
along from earlier draws (constants, means) is taken from all seeds together, but never from the one being judged where
leaving it out is possible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from kerneldojo.problems.budget import Budget
from kerneldojo.problems.tolerance import compare

NEARLY = 0.01
"""An answer within so small a part of the truth's rms counts as accepted, whatever the tolerance says: the output
hardly depends on the input, and half-precision noise would hide that it was not computed."""
NEARLY_CONSTANT = 0.005
"""The same for one number for all elements. A product of positive numbers comes near one by itself: sums of 8,192 lie
within 0.97 % of their mean, which is ten times what is allowed; sums of 524,288 within 0.12 %."""
CONSTANT = "a constant"


def answers(
    natives: Sequence[torch.Tensor],
    inputs: Sequence[Sequence[torch.Tensor]],
    others: Sequence[torch.Tensor],
) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """Yield names and answers for one output.

    Args:
        natives: the reference's output for every seed.
        inputs: the input tensors for every seed.
        others: the output of a model with other weights for every seed's inputs; empty where there are no weights.
    """
    first = natives[0]
    yield "zeros", [torch.zeros_like(native) for native in natives]
    for constant in _constants(natives):
        yield CONSTANT, [torch.full_like(native, constant) for native in natives]
    if first.is_floating_point():
        yield "the mean of other seeds", [_mean_without(natives, place) for place in range(len(natives))]
    yield "another seed's answer", [natives[(place + 1) % len(natives)] for place in range(len(natives))]
    for number, x in enumerate(inputs[0]):
        if x.shape == first.shape and x.dtype == first.dtype:
            yield f"input {number}", [tensors[number] for tensors in inputs]
    if others:
        yield "other weights", list(others)


def _constants(natives: Sequence[torch.Tensor]) -> list[float]:
    """Return the constants that come nearest to all answers in the mean, at most, and most often."""
    values = torch.cat([native.flatten() for native in natives])
    if not values.is_floating_point():
        return [float(values.flatten().long().mode().values)] if values.numel() else []
    values = values[values.isfinite()].double()
    if not values.numel():
        return []
    best = {float(values.mean()), float(values.median()), float((values.min() + values.max()) / 2)}
    return sorted(best)


def _mean_without(natives: Sequence[torch.Tensor], place: int) -> torch.Tensor:
    rest = [native.double() for number, native in enumerate(natives) if number != place]
    return torch.stack(rest).mean(dim=0).to(natives[place].dtype)


def accepts(expected: torch.Tensor, answer: torch.Tensor, budget: Budget, nearly: float = NEARLY) -> bool:
    """Whether a trivial answer passes for the truth, or comes too near it to tell."""
    if compare(expected, answer, budget).passed:
        return True
    if budget.exact or not expected.numel():
        return False
    truth, given = expected.double(), answer.double()
    if not torch.equal(truth.isfinite(), given.isfinite()):
        return False
    truth, given = truth[truth.isfinite()], given[truth.isfinite()]
    return bool((given - truth).square().mean().sqrt() <= nearly * truth.square().mean().sqrt())


def accepted_loosely(expected: torch.Tensor, answer: torch.Tensor) -> bool:
    """Whether `torch.allclose` at 1e-2 absolute and relative, the habit of other evaluators, takes the answer."""
    return torch.allclose(answer.double(), expected.double(), rtol=1e-2, atol=1e-2)
