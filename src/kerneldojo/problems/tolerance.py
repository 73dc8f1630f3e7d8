"""How close is close enough: an answer held against its budget (`budget`), as closely as its errors allow.

Beside the largest error, the root mean square of all errors must stay below twice the reference's (plus a part of the
floor). The largest of many errors says little about the arithmetic that made them, but their rms says it almost
exactly: this is what tells a product in bfloat16 from one in TF32, whose errors are only 3 times smaller where the
hardware truncates operands instead of rounding them (K = 4096 on an H200, relative to the rms: cuBLAS TF32 2.9e-4,
Triton's `tl.dot` 7.8e-4, bfloat16 2.4e-3). On positive inputs truncation has a bias larger than the random error of
bfloat16, so the two can be told apart only on signed ones.

Integers and booleans must be equal: to the truth or, where the reference itself is off it (the place of a maximum that
another element nearly is), to what it answers in an accepted precision. NaN and infinities must be of the same kind in
the same places; where float64 and the native dtype disagree on that (an overflow in half precision), either is right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from kerneldojo.problems import budget as budgets
from kerneldojo.problems.budget import ELEMENT_FACTOR, FLOOR_IN_UNIT, Budget, chunks
from kerneldojo.schema.figures import plain

RMS_LIMIT = 2.0
"""Largest root mean square of errors in units of `row_unit`; applies from `MIN_FOR_RMS` elements."""
MIN_FOR_RMS = 64

PrecisionClass = Literal["ieee", "tf32", "below"]


@dataclass(frozen=True)
class Comparison:
    """What a comparison found; it holds places and distances, never a value."""

    passed: bool
    reason: Literal["", "dtype", "shape", "values", "non_finite", "precision"] = ""
    """What is wrong: `precision` means that every element is within its tolerance, but errors are too large overall."""
    max_error: float = 0.0
    """Largest error in units of the tolerance, the scaled rms included: up to 1 passes. Infinite for a wrong kind."""
    rms_error: float = 0.0
    """Root mean square of errors in units of the reference's own: 1 is as exact as the reference, 2 the most."""
    where: tuple[int, ...] | None = None
    """Index of the worst element."""
    off_by: float = 0.0
    """Error of the worst element, in units of the rms of its row of the expected output."""
    fraction_wrong: float = 0.0
    """Share of the elements that are beyond their tolerance."""
    box: tuple[tuple[int, int], ...] | None = None
    """First and last index, in every dimension, between which all wrong elements lie."""
    detail: str = ""
    """For `dtype` and `shape`: what was expected and what came."""

    def describe(self) -> str:
        """One sentence for the candidate's author, without any secret value."""
        if self.passed:
            return f"within tolerance (largest error {self.max_error:.2g} of it)"
        if self.reason in ("dtype", "shape"):
            return f"wrong {self.reason}: {self.detail}"
        if self.reason == "precision":
            return (
                f"every element is close, but errors are {plain(self.max_error)} times what the accepted precision "
                "makes (rounding operands or sums too coarsely?)"
            )
        text = f"{100 * self.fraction_wrong:.3g} % of the elements are wrong"
        if self.where is not None:
            place = f"at {list(self.where)}"
            if self.reason == "non_finite":
                text += f"; the first, {place}, is NaN or infinite where it should not be, or the reverse"
            else:
                text += (
                    f"; the worst, {place}, is off by {plain(self.off_by)} times the typical size of its row "
                    f"({plain(self.max_error)} times the tolerance)"
                )
        if self.box is not None and self.fraction_wrong < 1:
            text += "; all wrong ones lie within [" + ", ".join(f"{a}..{b}" for a, b in self.box) + "]"
        return text


def compare(expected: torch.Tensor, got: torch.Tensor, budget: Budget) -> Comparison:
    """Compare one output with the truth.

    Args:
        expected: the tensor that `budget` was made for.
        got: what came back; any strides.
        budget: from `make_budget`.
    """
    if tuple(got.shape) != budget.shape:
        return Comparison(
            False, "shape", math.inf, detail=f"expected {list(budget.shape)}, got {list(got.shape)}", fraction_wrong=1.0
        )
    if got.dtype != budget.dtype:
        detail = f"expected {_name(budget.dtype)}, got {_name(got.dtype)}"
        return Comparison(False, "dtype", math.inf, detail=detail, fraction_wrong=1.0)
    if got.numel() == 0:
        return Comparison(True)
    if budget.exact:
        return _compare_exactly(expected, got, budget)
    # Only where something is wrong is there more to say than one pass can see.
    is_seen = _is_seen_in_one(expected, got, budget)
    return (_pass_in_one(expected, got, budget) if is_seen else None) or _compare_closely(expected, got, budget)


def compare_if_well(expected: torch.Tensor, got: torch.Tensor, budget: Budget) -> Comparison | None:
    """The same for an answer of the right shape and type, but None for one that does not pass, whatever is wrong.

    For whoever has a second budget to hold it against: to say what is wrong takes far longer than to see that all is
    well.
    """
    if _is_seen_in_one(expected, got, budget):
        return _pass_in_one(expected, got, budget)
    found = compare(expected, got, budget)
    return found if found.passed else None


def _is_seen_in_one(expected: torch.Tensor, got: torch.Tensor, budget: Budget) -> bool:
    """Whether one pass on a GPU can show that all is well."""
    is_alike = tuple(got.shape) == budget.shape and got.dtype == budget.dtype
    if budget.exact or budget.nudged is not None or not is_alike or not got.numel():
        return False
    return budgets.is_for_kernels(expected, got, *budget.accepted)


def _pass_in_one(expected: torch.Tensor, got: torch.Tensor, budget: Budget) -> Comparison | None:
    """The comparison by one pass on a GPU, if it shows that all is well."""
    from kerneldojo.problems import distances

    seen = distances.worst(
        expected,
        got,
        budget.accepted,
        distances.Rows(budget.row_size, budget.row_rms, budget.row_tolerance, budget.row_unit),
        relative=budget.relative,
        element_factor=ELEMENT_FACTOR,
        floor_in_unit=FLOOR_IN_UNIT,
    )
    rms = math.sqrt(seen.squares / seen.num_finite) if seen.num_finite else 0.0
    overall = rms / RMS_LIMIT if seen.num_finite >= MIN_FOR_RMS else 0.0
    if not (seen.is_well and overall <= 1):  # Whatever is no number is not well either.
        return None
    off_by = seen.difference / seen.row_rms if seen.row_rms else 0.0
    return Comparison(True, "", max(seen.ratio, overall), rms, _unravel(seen.at, got.shape), off_by)


def _compare_exactly(expected: torch.Tensor, got: torch.Tensor, budget: Budget) -> Comparison:
    wrong = got != expected.to(got.dtype)
    for run in budget.accepted:
        wrong &= got != run
    num_wrong = int(wrong.sum())
    if not num_wrong:
        return Comparison(True)
    where = _unravel(int(wrong.flatten().to(torch.uint8).argmax()), got.shape)
    share = num_wrong / got.numel()
    return Comparison(False, "values", math.inf, math.inf, where, math.inf, share, _box(wrong))


def _compare_closely(expected: torch.Tensor, got: torch.Tensor, budget: Budget) -> Comparison:
    row = 0
    squares, num_finite, num_wrong, num_broken = 0.0, 0, 0, 0
    worst, worst_at, worst_difference, broken_at = -1.0, 0, 0.0, -1
    marks: list[torch.Tensor] = []
    nudged = () if budget.nudged is None else (budget.nudged,)
    for truth, answer, *runs in chunks(budget.row_size, expected, got, *budget.accepted, *nudged):
        tolerance = budget.row_tolerance[row : row + len(truth), None]
        if nudged:
            tolerance = tolerance + budget.nudges * torch.nan_to_num(runs.pop() - truth, 0.0, 0.0, 0.0).abs()
        unit = (
            budget.row_unit[row : row + len(truth), None]
            + FLOOR_IN_UNIT * budget.relative * truth.nan_to_num(0.0, 0.0, 0.0).abs()
        )
        difference, ratio, comparable, broken = _judge(truth, answer, runs, tolerance, budget.relative)
        start = row * truth.shape[1]
        row += len(truth)
        marks.append((broken | (ratio > 1)).flatten())
        at = ratio.argmax()
        facts = (
            marks[-1].sum(),
            broken.sum(),
            broken.flatten().to(torch.uint8).argmax(),
            comparable.sum(),
            (difference / unit).square().sum(),
            at,
            ratio.flatten()[at],
            difference.flatten()[at],
        )
        # Fetched at once: on a device that others share, each fetch is a wait of its own.
        wrong_here, broken_here, broken_first, finite_here, squares_here, at_here, ratio_here, difference_here = (
            torch.stack([fact.double() for fact in facts]).tolist()
        )
        if broken_here and not num_broken:
            broken_at = start + int(broken_first)
        num_wrong += int(wrong_here)
        num_broken += int(broken_here)
        num_finite += int(finite_here)
        squares += squares_here
        if ratio_here > worst:
            worst, worst_at, worst_difference = ratio_here, start + int(at_here), difference_here
    rms = math.sqrt(squares / num_finite) if num_finite else 0.0
    overall = rms / RMS_LIMIT if num_finite >= MIN_FOR_RMS else 0.0
    parts = 2 if got.is_complex() else 1  # A complex number is wrong where either part of it is.
    scale = float(budget.row_rms[worst_at // (parts * budget.row_size)])
    off_by = worst_difference / scale if scale else math.inf
    where = _unravel(worst_at // parts, got.shape)
    if num_wrong:
        wrong = torch.cat(marks).reshape(*got.shape, parts).any(dim=-1)
        share, box = int(wrong.sum()) / got.numel(), _box(wrong)
        if num_broken:
            where = _unravel(broken_at // parts, got.shape)
            return Comparison(False, "non_finite", math.inf, rms, where, math.inf, share, box)
        return Comparison(False, "values", max(worst, overall), rms, where, off_by, share, box)
    if overall > 1:
        return Comparison(False, "precision", overall, rms, where, off_by)
    return Comparison(True, "", max(worst, overall), rms, where, off_by if worst > 0 else 0.0)


def _judge(
    truth: torch.Tensor, answer: torch.Tensor, runs: list[torch.Tensor], absolute: torch.Tensor, relative: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return difference, its ratio to the tolerance, where these mean something, and where the kind is wrong."""
    native = runs[0]
    finite_truth, finite_native, finite_answer = truth.isfinite(), native.isfinite(), answer.isfinite()
    target = torch.where(finite_truth, truth, native)
    error = torch.stack([torch.nan_to_num(run - target, 0.0, 0.0, 0.0).abs() for run in runs]).amax(dim=0)
    tolerance = absolute + ELEMENT_FACTOR * error + relative * torch.nan_to_num(target, 0.0, 0.0, 0.0).abs()
    comparable = finite_answer & (finite_truth | finite_native)
    difference = torch.where(comparable, (answer - target).abs(), 0.0)
    same_kind = (_same_kind(answer, truth) & ~finite_truth) | (_same_kind(answer, native) & ~finite_native)
    return difference, difference / tolerance, comparable, ~comparable & ~same_kind


def _same_kind(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.isnan() & b.isnan()) | (a == b)


def classify(
    expected: Sequence[torch.Tensor],
    got: Sequence[torch.Tensor],
    native_budgets: Sequence[Budget],
    accepted_budgets: Sequence[Budget],
) -> PrecisionClass:
    """Return the class of the arithmetic that made `got`: within the native budgets, the accepted ones, or neither."""

    def all_pass(budgets: Sequence[Budget]) -> bool:
        return all(compare(e, g, b).passed for e, g, b in zip(expected, got, budgets, strict=True))

    if all_pass(native_budgets):
        return "ieee"
    return "tf32" if all_pass(accepted_budgets) else "below"


def _box(wrong: torch.Tensor) -> tuple[tuple[int, int], ...]:
    bounds: list[tuple[int, int]] = []
    for dim in range(wrong.dim()):
        others = [other for other in range(wrong.dim()) if other != dim]
        hit = wrong.any(dim=others) if others else wrong
        places = hit.nonzero().flatten()
        bounds.append((int(places[0]), int(places[-1])))
    return tuple(bounds)


def _unravel(position: int, shape: torch.Size) -> tuple[int, ...]:
    index: list[int] = []
    total = math.prod(shape)
    position = min(position, total - 1)
    for length in reversed(shape):
        index.append(position % length)
        position //= length
    return tuple(reversed(index))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
