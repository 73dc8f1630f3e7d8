"""Distances on a GPU: what `tolerance` asks about tensors, in one pass over them instead of sixty.

A comparison in float64 by torch's operations reads and writes each element some sixty times. On a device that several
verdicts share this was half of what the judge itself spent, and others waited for the device meanwhile. The kernels
here compute the same quantities, by the same formulas, in float64, reading each tensor once.

They are trusted with one answer only: that all is well. Whoever finds an element wrong has it looked at again, by
`tolerance` itself, which says what is wrong and where.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

SPLIT = 1 << 14
"""Most elements of a row that one program looks at."""
BLOCK = 512
"""Most that it looks at in one go; with more, registers run out."""
GENERAL = ["truth", "answer", "first", "last", "row_tolerance", "row_unit", "facts", "width", "plane", "splits"]
"""What kernels are not compiled anew for: where a candidate's answer lies, for one."""
NUM_ROW_FACTS = 6
NUM_FACTS = 6


@dataclass(frozen=True)
class Rows:
    """What the rows of a tensor have each, float64."""

    width: int
    """Elements of a row; rows follow each other."""
    rms: torch.Tensor
    tolerance: torch.Tensor
    unit: torch.Tensor


@dataclass(frozen=True)
class Worst:
    """What one pass over truth and answer shows."""

    is_well: bool
    """No element is beyond its tolerance, or of the wrong kind."""
    num_finite: int
    """Elements whose difference means something."""
    squares: float
    """Sum of the squared differences, in units of their rows."""
    ratio: float
    """Largest difference in units of the tolerance."""
    at: int
    """Where that is, in elements."""
    difference: float
    """The difference there."""
    row_rms: float
    """Root mean square of the truth's row there."""


def row_errors(truth: torch.Tensor, runs: tuple[torch.Tensor, ...], width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Root mean square of every row of `truth`, and of the error of the worst of `runs` in it, float64 both.

    Args:
        truth: any shape; rows are `width` elements that follow each other.
        runs: one or two tensors like it.
        width: elements of a row.
    """
    flat = [tensor.reshape(-1) for tensor in (truth, *runs)]
    rows, splits, shape = _grid(flat[0].numel(), width)
    facts = torch.empty(NUM_ROW_FACTS, rows, splits, dtype=torch.float64, device=truth.device)
    kernel: Any = _row_kernel
    kernel[(rows * splits,)](flat[0], flat[1], flat[-1], facts, width, rows * splits, splits, **shape)
    squares, counts = facts.sum(dim=2).view(2, 3, rows)
    rms = (squares / counts.clamp(min=1)).sqrt()
    return rms[0], torch.maximum(rms[1], rms[2])


def worst(
    truth: torch.Tensor,
    answer: torch.Tensor,
    runs: tuple[torch.Tensor, ...],
    of: Rows,
    *,
    relative: float,
    element_factor: float,
    floor_in_unit: float,
) -> Worst:
    """Hold an answer against the truth; the formulas are `tolerance._judge`'s.

    Args:
        truth, answer, runs: as for `row_errors`.
        of: their rows.
        relative: part of the tolerance that goes with the element.
        element_factor: multiple of the runs' own error that is allowed.
        floor_in_unit: part of the former that goes into the unit.
    """
    flat = [tensor.reshape(-1) for tensor in (truth, answer, *runs)]
    rows, splits, shape = _grid(flat[0].numel(), of.width)
    facts = torch.empty(NUM_FACTS, rows, splits, dtype=torch.float64, device=truth.device)
    kernel: Any = _worst_kernel
    kernel[(rows * splits,)](
        flat[0], flat[1], flat[2], flat[-1], of.tolerance.contiguous(), of.unit.contiguous(), facts, of.width,
        rows * splits, splits, RELATIVE=relative, FACTOR=element_factor, UNIT_PART=floor_in_unit * relative,
        **shape,
    )  # fmt: skip
    facts = facts.view(NUM_FACTS, -1)
    most = facts[3].argmax().view(1)
    # Fetched at once: on a device that others share, each fetch is a wait of its own.
    there = [facts[3:].index_select(1, most).view(-1), of.rms.index_select(0, most // splits)]
    found = torch.cat([facts[:3].sum(dim=1), *there]).tolist()
    num_off, num_finite, squares, ratio, at, difference, rms = found
    return Worst(num_off == 0, int(num_finite), squares, ratio, int(at), difference, rms)


def _grid(count: int, width: int) -> tuple[int, int, dict[str, int]]:
    """Rows, programs a row, and how those are compiled. A grid has one dimension: its others end at 65,535, and a row
    may be a vector of any length."""
    padded = max(64, 1 << (width - 1).bit_length())
    block = min(BLOCK, padded)
    return count // width, -(-width // SPLIT), {"BLOCK": block, "SPLIT": min(SPLIT, padded), "num_warps": block // 64}


@triton.jit
def _is_finite(value: tl.tensor) -> tl.tensor:
    return tl.abs(value) < float("inf")


@triton.jit(do_not_specialize=GENERAL, do_not_specialize_on_alignment=GENERAL)
def _row_kernel(
    truth: tl.tensor, first: tl.tensor, last: tl.tensor, facts: tl.tensor, width: tl.tensor, plane: tl.tensor,
    splits: tl.tensor, BLOCK: tl.constexpr, SPLIT: tl.constexpr,
) -> None:  # fmt: skip
    row = (tl.program_id(0) // splits).to(tl.int64)
    split = (tl.program_id(0) % splits).to(tl.int64)
    sums_of_truth = tl.zeros([BLOCK], tl.float64)
    sums_of_first = tl.zeros([BLOCK], tl.float64)
    sums_of_last = tl.zeros([BLOCK], tl.float64)
    nums_of_truth = tl.zeros([BLOCK], tl.float64)
    nums_of_first = tl.zeros([BLOCK], tl.float64)
    nums_of_last = tl.zeros([BLOCK], tl.float64)
    for start in range(0, SPLIT, BLOCK):
        column = split * SPLIT + start + tl.arange(0, BLOCK)
        inside = column < width
        at = row * width + column
        true = tl.load(truth + at, inside, other=0.0).to(tl.float64)
        error = tl.load(first + at, inside, other=0.0).to(tl.float64) - true
        other = tl.load(last + at, inside, other=0.0).to(tl.float64) - true
        counts = inside & _is_finite(true)
        sums_of_truth += tl.where(counts, true * true, 0.0)
        nums_of_truth += tl.where(counts, 1.0, 0.0)
        counts = inside & _is_finite(error)
        sums_of_first += tl.where(counts, error * error, 0.0)
        nums_of_first += tl.where(counts, 1.0, 0.0)
        counts = inside & _is_finite(other)
        sums_of_last += tl.where(counts, other * other, 0.0)
        nums_of_last += tl.where(counts, 1.0, 0.0)
    place = facts + tl.program_id(0).to(tl.int64)
    tl.store(place, tl.sum(sums_of_truth, axis=0))
    tl.store(place + plane, tl.sum(sums_of_first, axis=0))
    tl.store(place + 2 * plane, tl.sum(sums_of_last, axis=0))
    tl.store(place + 3 * plane, tl.sum(nums_of_truth, axis=0))
    tl.store(place + 4 * plane, tl.sum(nums_of_first, axis=0))
    tl.store(place + 5 * plane, tl.sum(nums_of_last, axis=0))


@triton.jit(do_not_specialize=GENERAL, do_not_specialize_on_alignment=GENERAL)
def _worst_kernel(
    truth: tl.tensor, answer: tl.tensor, first: tl.tensor, last: tl.tensor, row_tolerance: tl.tensor,
    row_unit: tl.tensor, facts: tl.tensor, width: tl.tensor, plane: tl.tensor, splits: tl.tensor,
    RELATIVE: tl.constexpr, FACTOR: tl.constexpr, UNIT_PART: tl.constexpr, BLOCK: tl.constexpr, SPLIT: tl.constexpr,
) -> None:  # fmt: skip
    row = (tl.program_id(0) // splits).to(tl.int64)
    split = (tl.program_id(0) % splits).to(tl.int64)
    allowed = tl.load(row_tolerance + row)
    unit_of_row = tl.load(row_unit + row)
    nums_off = tl.zeros([BLOCK], tl.float64)
    nums_finite = tl.zeros([BLOCK], tl.float64)
    squares = tl.zeros([BLOCK], tl.float64)
    ratios = tl.zeros([BLOCK], tl.float64) - 1.0
    places = tl.zeros([BLOCK], tl.int64)
    differences = tl.zeros([BLOCK], tl.float64)
    for start in range(0, SPLIT, BLOCK):
        column = split * SPLIT + start + tl.arange(0, BLOCK)
        inside = column < width
        at = row * width + column
        true = tl.load(truth + at, inside, other=0.0).to(tl.float64)
        mine = tl.load(answer + at, inside, other=0.0).to(tl.float64)
        native = tl.load(first + at, inside, other=0.0).to(tl.float64)
        accepted = tl.load(last + at, inside, other=0.0).to(tl.float64)
        is_true_finite = _is_finite(true)
        is_native_finite = _is_finite(native)
        target = tl.where(is_true_finite, true, native)
        size = tl.where(_is_finite(target), tl.abs(target), 0.0)
        error = tl.abs(native - target)
        error = tl.where(_is_finite(error), error, 0.0)
        other = tl.abs(accepted - target)
        other = tl.where(_is_finite(other), other, 0.0)
        tolerance = allowed + FACTOR * tl.maximum(error, other) + RELATIVE * size
        unit = unit_of_row + UNIT_PART * tl.where(is_true_finite, tl.abs(true), 0.0)
        is_comparable = inside & _is_finite(mine) & (is_true_finite | is_native_finite)
        difference = tl.where(is_comparable, tl.abs(mine - target), 0.0)
        ratio = tl.where(inside, difference / tolerance, 0.0)
        is_like_true = (((mine != mine) & (true != true)) | (mine == true)) & (is_true_finite == 0)
        is_like_native = (((mine != mine) & (native != native)) | (mine == native)) & (is_native_finite == 0)
        is_broken = inside & (is_comparable == 0) & ((is_like_true | is_like_native) == 0)
        is_within = (ratio <= 1.0) & (is_broken == 0)
        nums_off += tl.where(inside & (is_within == 0), 1.0, 0.0)
        nums_finite += tl.where(is_comparable, 1.0, 0.0)
        part = tl.where(inside, difference / unit, 0.0)
        squares += part * part
        is_more = inside & (ratio > ratios)
        ratios = tl.where(is_more, ratio, ratios)
        places = tl.where(is_more, at, places)
        differences = tl.where(is_more, difference, differences)
    most, lane = tl.max(ratios, axis=0, return_indices=True)
    chosen = tl.arange(0, BLOCK) == lane
    place = facts + tl.program_id(0).to(tl.int64)
    tl.store(place, tl.sum(nums_off, axis=0))
    tl.store(place + plane, tl.sum(nums_finite, axis=0))
    tl.store(place + 2 * plane, tl.sum(squares, axis=0))
    tl.store(place + 3 * plane, most)
    tl.store(place + 4 * plane, tl.sum(tl.where(chosen, places, 0), axis=0).to(tl.float64))
    tl.store(place + 5 * plane, tl.sum(tl.where(chosen, differences, 0.0), axis=0))
