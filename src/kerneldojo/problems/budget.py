"""How far an answer may be from the truth: a budget from the reference's own error, never a fixed one.

An absolute tolerance of 1e-2 accepts zeros from a softmax, and refuses an honest product of large numbers. Here the
reference is run twice more than needed: in float64 (the truth) and in the coarsest arithmetic that the problem accepts
(TF32 products, for float32 problems, by default). The second run's distance from the first is the error that the
problem's own arithmetic makes; a candidate may make a small multiple of it. For an element `i` of a row `r`

    tolerance = 10 * sigma[r] + 4 * |accepted[i] - expected[i]| + floor[r] + few ulp of |expected[i]|

where `sigma[r]` is the root mean square of the reference's error in that row (or the row's size times the median
relative error, whichever is larger, so that a luckily exact row does not refuse everyone), and the floor is a few ulp
of the row's rms plus `sqrt(K)` ulp for the longest sum `K`: two honest orders of summation differ by that much.

Where a problem is ill-conditioned (the cosine of a sum of hundreds: `is_sensitive`) none of this is enough if outputs
are few, for then the reference may be exact by luck. There the truth is also computed for inputs and weights that are
all one rounding larger, and an answer may err by `4 + sqrt(K) / 2` times what that changes, at the element and (rms) in
its row: so much an honest sum may err, in whatever order, and one that is nearly nothing as much as its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from kerneldojo.problems.pieces import pieces

SIGMAS = 10.0
"""Allowed multiple of the rms error of the reference; the largest of 1e8 normal errors lies at 5.7."""
ELEMENT_FACTOR = 4.0
"""Allowed multiple of the reference's error at the element itself: ill-conditioned elements are so for everyone."""
FLOOR_IN_UNIT = 1.0 / 6.0
"""Part of the floor that goes into the unit: honest errors lie well within the floor, not at its edge."""
ROW_ULP = 64.0
"""Two honest formulas of one function differ by so much: tanh by way of a sigmoid loses what is small beside 1."""
ELEMENT_ULP = 8.0
HALF_ROW_ULP = 0.5
HALF_ELEMENT_ULP = 2.0
WITHOUT_ORACLE = 4.0
"""Factor on the floor where the truth itself is only float32."""
NUDGE = 2.0**-23
"""Relative change of inputs and weights in the reference's `nudged` run: one rounding in float32."""
SENSITIVE = 4.0
"""How many times the floor a nudge may change an answer before it counts: else there is room for it anyway."""
MIN_ROW = 64
"""A row is the fewest trailing dimensions that hold so many elements."""
CHUNK = 1 << 22
"""Elements looked at in one go, so that temporaries stay small beside the tensors."""
ON_GPU = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""What the kernels of `problems.distances` take."""

Runs = tuple[torch.Tensor, ...]
"""The reference's outputs in the accepted precisions, one or two; the first is native."""


@dataclass(frozen=True)
class Budget:
    """How far each element of one output may be from the truth. Made by `make_budget`."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    exact: bool
    """Whether values must be equal: integers and booleans."""
    row_size: int
    row_rms: torch.Tensor
    """Root mean square of each row of the expected output, finite elements only."""
    row_tolerance: torch.Tensor
    """Absolute part of the tolerance, one value a row."""
    row_unit: torch.Tensor
    """What the rms of errors is measured in, one value a row: the reference's rms error plus a part of the floor."""
    relative: float
    """Part of the tolerance that is proportional to the element's own size."""
    accepted: Runs
    nudged: torch.Tensor | None = None
    """The truth for inputs that are one rounding larger, for ill-conditioned problems."""
    nudges: float = 0.0
    """How many times the change that this makes is allowed at each element, beside `row_tolerance`."""


def make_budget(
    expected: torch.Tensor,
    native: torch.Tensor,
    accepted: torch.Tensor | None = None,
    *,
    nudged: torch.Tensor | None = None,
    reduction_length: int = 1,
) -> Budget:
    """Settle the tolerance of one output.

    Args:
        expected: the truth, in float64 (or the native output, where no float64 run is possible).
        native: the reference's output as the problem is written; settles shape and dtype.
        accepted: its output in the coarsest accepted precision (TF32 products), or None to accept only the native.
        nudged: the truth for inputs and weights that are larger by `NUDGE`, or None where that is as nothing.
        reduction_length: most terms that the problem sums for one element.

    Raises:
        ValueError: shapes that do not match.
    """
    if any(run is not None and run.shape != native.shape for run in (expected, accepted, nudged)):
        raise ValueError("the outputs of the reference differ in shape between precisions")
    runs = (native,) if accepted is None else (native, accepted)
    row_size = _row_size(native.shape)
    if native.numel() == 0 or not (native.is_floating_point() or native.is_complex()):
        empty = torch.zeros(0, device=native.device)
        return Budget(tuple(native.shape), native.dtype, True, row_size, empty, empty, empty, 0.0, runs)
    row_rms, row_sigma = _row_errors(row_size, expected, runs)
    tolerance, unit, relative = _tolerances(row_rms, row_sigma, native.dtype, expected.dtype, reduction_length)
    nudges = num_nudges(reduction_length)
    if nudged is not None:
        tolerance = tolerance + nudges * _row_errors(row_size, expected, (nudged,))[1]
    settled = (tolerance, unit, relative, runs, nudged, nudges)
    return Budget(tuple(native.shape), native.dtype, False, row_size, row_rms, *settled)


def is_for_kernels(*tensors: torch.Tensor) -> bool:
    """Whether the kernels of `problems.distances` take them: one pass over each instead of dozens."""
    return all(tensor.is_cuda and tensor.dtype in ON_GPU for tensor in tensors)


def num_nudges(reduction_length: int) -> float:
    """How many times the change by one rounding of all inputs an honest answer may be off."""
    return ELEMENT_FACTOR + math.sqrt(reduction_length) / 2.0


def is_sensitive(expected: torch.Tensor, native: torch.Tensor, nudged: torch.Tensor, *, reduction_length: int) -> bool:
    """Whether roundings of the inputs may move an element by `SENSITIVE` times the floor of its tolerance.

    Args:
        expected: the truth, in float64.
        native: the reference's output as the problem is written.
        nudged: the truth for inputs and weights that are larger by `NUDGE`.
        reduction_length: most terms that the problem sums for one element.
    """
    if not (native.numel() and native.is_floating_point() and expected.shape == nudged.shape):
        return False
    share = num_nudges(reduction_length) / SENSITIVE
    for truth, other in chunks(_row_size(native.shape), expected, nudged):
        rms = _row_rms(truth)
        floor, _, relative = _tolerances(rms, torch.zeros_like(rms), native.dtype, expected.dtype, reduction_length)
        if bool((share * (other - truth).abs() > floor[:, None] + relative * truth.abs()).any()):
            return True
    return False


def _tolerances(
    row_rms: torch.Tensor,
    row_sigma: torch.Tensor,
    dtype: torch.dtype,
    oracle: torch.dtype,
    reduction_length: int,
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Return tolerance and unit of every row, and the part of the tolerance that goes with the element."""
    # Nothing is fetched, as `nanmedian` would: on a device that others share, each fetch is a wait of its own.
    ratios = torch.where(row_rms > 0, row_sigma / row_rms, torch.nan)
    middle = ((~ratios.isnan()).sum().view(1) - 1).clamp(min=0) // 2
    typical = ratios.sort().values.index_select(0, middle).nan_to_num(0.0)
    sigma = torch.maximum(row_sigma, typical * row_rms)
    return settle_rows(row_rms, sigma, row_rms.square().mean().sqrt(), dtype, oracle, reduction_length)


def settle_rows(
    rms: torch.Tensor,
    sigma: torch.Tensor,
    whole: torch.Tensor,
    dtype: torch.dtype,
    oracle: torch.dtype,
    reduction_length: int,
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Tolerance and unit of every row, and the part of the tolerance that goes with the element.

    Args:
        rms: of the rows of the truth.
        sigma: rms errors of the reference in them.
        whole: root mean square of the tensor that a row is of.
        dtype: of the output.
        oracle: of the truth.
        reduction_length: most terms that the problem sums for one element.
    """
    information = torch.finfo(dtype)
    half = information.bits == 16
    eps = information.eps
    # Sums of half-precision values are kept in float32 by any sensible kernel.
    eps_of_sums = torch.finfo(torch.float32).eps if half else eps
    row_ulp, element_ulp = (HALF_ROW_ULP, HALF_ELEMENT_ULP) if half else (ROW_ULP, ELEMENT_ULP)
    factor = 1.0 if oracle == torch.float64 else WITHOUT_ORACLE
    floor = rms * (row_ulp * eps + 2.0 * math.sqrt(reduction_length) * eps_of_sums) + whole * eps_of_sums
    floor = factor * floor + information.tiny
    return SIGMAS * sigma + floor, sigma + FLOOR_IN_UNIT * floor, factor * element_ulp * eps


def chunks(row_size: int, *tensors: torch.Tensor) -> Iterator[list[torch.Tensor]]:
    """Walk the tensors together, some rows at a time, in float64 and as a matrix of rows."""
    real = [torch.view_as_real(t) if t.is_complex() else t for t in tensors]
    width = max(1, row_size * (2 if tensors[0].is_complex() else 1))
    for some in pieces(*real, size=max(1, CHUNK // width) * width):
        yield [piece.view(-1, width).double() for piece in some]


def _row_size(shape: torch.Size) -> int:
    size = 1
    for length in reversed(shape):
        size *= length
        if size >= MIN_ROW:
            break
    return size


def _row_errors(row_size: int, truth: torch.Tensor, runs: Runs) -> tuple[torch.Tensor, torch.Tensor]:
    """Root mean square of every row of the truth, and of the error of the worst of `runs` in it."""
    if is_for_kernels(truth, *runs):
        from kerneldojo.problems import distances

        return distances.row_errors(truth, runs, row_size)
    rms: list[torch.Tensor] = []
    sigma: list[torch.Tensor] = []
    for piece, *others in chunks(row_size, truth, *runs):
        rms.append(_row_rms(piece))
        sigma.append(torch.stack([_row_rms(other - piece) for other in others]).amax(dim=0))
    return torch.cat(rms), torch.cat(sigma)


def _row_rms(rows: torch.Tensor) -> torch.Tensor:
    """Root mean square of every row over its finite elements; 0 for a row without any."""
    finite = rows.isfinite()
    values = torch.where(finite, rows, 0.0)
    return (values.square().sum(dim=1) / finite.sum(dim=1).clamp(min=1)).sqrt()
