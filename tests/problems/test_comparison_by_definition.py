"""Budgets and comparisons, held against what `budget` and `tolerance` say they are, element by element in plain floats.

What they compute at once for millions of elements, in chunks, is computed here by loops that share nothing with it but
its constants.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kerneldojo.problems import budget
from kerneldojo.problems.budget import (
    ELEMENT_FACTOR,
    ELEMENT_ULP,
    FLOOR_IN_UNIT,
    HALF_ELEMENT_ULP,
    HALF_ROW_ULP,
    MIN_ROW,
    NUDGE,
    ROW_ULP,
    SIGMAS,
    WITHOUT_ORACLE,
    make_budget,
)
from kerneldojo.problems.tolerance import MIN_FOR_RMS, RMS_LIMIT, Comparison, compare

EPS = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7, torch.float32: 2.0**-23}


@dataclass(frozen=True)
class Given:
    """What a comparison is made of."""

    truth: torch.Tensor
    native: torch.Tensor
    accepted: torch.Tensor | None
    nudged: torch.Tensor | None
    got: torch.Tensor
    reduction_length: int

    def compared(self) -> Comparison:
        made = make_budget(
            self.truth, self.native, self.accepted, nudged=self.nudged, reduction_length=self.reduction_length
        )
        return compare(self.truth, self.got, made)


def rms(values: list[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return math.sqrt(sum(value * value for value in finite) / len(finite)) if finite else 0.0


def less(one: float, other: float) -> float:
    """The distance; 0 where that is no number."""
    return abs(one - other) if math.isfinite(one - other) else 0.0


def are_alike(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def by_definition(case: Given) -> Comparison:
    shape, dtype = tuple(case.native.shape), case.native.dtype
    row_size = next((n for n in itertools.accumulate(reversed(shape), int.__mul__) if n >= MIN_ROW), math.prod(shape))
    truth, native, got = (
        [float(v) for v in tensor.double().flatten()] for tensor in (case.truth, case.native, case.got)
    )
    runs = [native, *([] if case.accepted is None else [case.accepted.double().flatten().tolist()])]
    nudged = None if case.nudged is None else case.nudged.flatten().tolist()
    rows = [range(start, start + row_size) for start in range(0, len(truth), row_size)]
    size = [rms([truth[i] for i in row]) for row in rows]
    sigma = [max(rms([run[i] - truth[i] for i in row]) for run in runs) for row in rows]
    shares = sorted(s / r for s, r in zip(sigma, size, strict=True) if r > 0)
    typical = shares[(len(shares) - 1) // 2] if shares else 0.0
    is_half, eps = dtype != torch.float32, EPS[dtype]
    factor = 1.0 if case.truth.dtype == torch.float64 else WITHOUT_ORACLE
    relative = factor * (HALF_ELEMENT_ULP if is_half else ELEMENT_ULP) * eps
    nudges = 4.0 + math.sqrt(case.reduction_length) / 2
    tolerances, units = [0.0] * len(truth), [0.0] * len(truth)
    for number, row in enumerate(rows):
        rounding = (HALF_ROW_ULP if is_half else ROW_ULP) * eps + 2 * math.sqrt(case.reduction_length) * 2.0**-23
        floor = factor * (size[number] * rounding + rms(size) * 2.0**-23) + torch.finfo(dtype).tiny
        error = max(sigma[number], typical * size[number])
        for i in row:
            target = truth[i] if math.isfinite(truth[i]) else native[i]
            tolerances[i] = SIGMAS * error + floor
            tolerances[i] += ELEMENT_FACTOR * max(less(run[i], target) for run in runs) + relative * less(target, 0.0)
            if nudged is not None:
                tolerances[i] += nudges * (rms([nudged[j] - truth[j] for j in row]) + less(nudged[i], truth[i]))
            units[i] = error + FLOOR_IN_UNIT * (floor + relative * less(truth[i], 0.0))
    broken, ratios, differences, scaled = [], [], [], []
    for i, answer in enumerate(got):
        target = truth[i] if math.isfinite(truth[i]) else native[i]
        is_number = math.isfinite(answer) and math.isfinite(target)
        is_alike = any(not math.isfinite(right[i]) and are_alike(answer, right[i]) for right in (truth, native))
        if not is_number and not is_alike:
            broken.append(i)
        differences.append(abs(answer - target) if is_number else 0.0)
        ratios.append(differences[i] / tolerances[i])
        scaled += [differences[i] / units[i]] if is_number else []
    wrong = sorted({i for i, ratio in enumerate(ratios) if ratio > 1} | set(broken))
    error, worst = rms(scaled), ratios.index(max(ratios))
    overall = error / RMS_LIMIT if len(scaled) >= MIN_FOR_RMS else 0.0
    share, box = len(wrong) / len(got), _box(wrong, shape)
    if broken:
        return Comparison(False, "non_finite", math.inf, error, _at(broken[0], shape), math.inf, share, box)
    scale = size[worst // row_size]
    off_by = differences[worst] / scale if scale else math.inf
    place, most = _at(worst, shape), max(ratios[worst], overall)
    if wrong:
        return Comparison(False, "values", most, error, place, off_by, share, box)
    if overall > 1:
        return Comparison(False, "precision", overall, error, place, off_by)
    return Comparison(True, "", most, error, place, off_by if ratios[worst] else 0.0)


def _at(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return next(itertools.islice(itertools.product(*map(range, shape)), position, None))


def _box(wrong: list[int], shape: tuple[int, ...]) -> tuple[tuple[int, int], ...] | None:
    places = [_at(i, shape) for i in wrong]
    return tuple((min(along), max(along)) for along in zip(*places, strict=True)) if places else None


@st.composite
def givens(draw: st.DrawFn) -> Given:
    """Answers of every kind: right ones, coarse ones, wrong at places, and what is no number."""
    shape = draw(st.sampled_from([(), (5,), (130,), (3, 70), (4, 64), (2, 3, 40), (7, 2, 33), (6, 5, 1)]))
    dtype = draw(st.sampled_from([torch.float32, torch.float32, torch.bfloat16, torch.float16]))
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    normal = lambda: torch.randn(shape, generator=random, dtype=torch.float64)  # noqa: E731
    places = lambda: torch.rand(shape, generator=random) < draw(st.sampled_from([0.01, 0.1, 0.6]))  # noqa: E731
    truth = normal() + draw(st.sampled_from([0.0, 0.0, 3.0]))
    if shape and draw(st.booleans()):
        truth = truth * torch.logspace(0, -3, shape[0], dtype=torch.float64).view(-1, *[1] * (len(shape) - 1))
    if shape and draw(st.booleans()):
        truth[0] = 0.0
    eps = EPS[dtype]
    native = (truth * (1 + draw(st.sampled_from([0.0, 3.0])) * eps * normal())).to(dtype)
    accepted = (native.double() * (1 + 30 * eps * normal())).to(dtype) if draw(st.booleans()) else None
    nudged = truth * (1 + NUDGE) + draw(st.sampled_from([0.0, 100 * eps])) * normal() if draw(st.booleans()) else None
    noise = draw(st.sampled_from([0.0, 1.0, 5.0, 30.0, 100.0, 300.0]))
    got = native.double() + noise * eps * normal() * draw(st.sampled_from([truth.abs(), truth.square().mean().sqrt()]))
    if draw(st.booleans()):
        got = torch.where(places(), got + draw(st.sampled_from([1.0, 1e-3, 1e4])), got)
    for value in draw(st.lists(st.sampled_from([math.nan, math.inf, -math.inf]), max_size=2)):
        where = places()
        who = draw(st.sampled_from(["got", "native", "both", "all", "truth"]))
        native = torch.where(where, value, native) if who in ("native", "both", "all") else native
        truth = torch.where(where, value, truth) if who in ("truth", "all") else truth
        got = torch.where(where, value, got) if who in ("got", "both", "all") else got
    if draw(st.integers(0, 4)) == 0:
        truth = truth.float()
    return Given(truth, native, accepted, nudged, got.to(dtype), draw(st.sampled_from([1, 64, 4096])))


def check(found: Comparison, wanted: Comparison) -> None:
    for one, other in ((found.max_error, wanted.max_error), (found.rms_error, wanted.rms_error)):
        assert one == pytest.approx(other, rel=1e-5)
    assert found.off_by == pytest.approx(wanted.off_by, rel=1e-5)
    same = {"max_error": 0.0, "rms_error": 0.0, "off_by": 0.0}
    assert replace(found, **same) == replace(wanted, **same)


@settings(max_examples=150, deadline=None)
@given(givens())
def test_a_comparison_is_what_it_says(case: Given) -> None:
    check(case.compared(), by_definition(case))


@settings(max_examples=60, deadline=None)
@given(givens())
def test_so_it_is_in_chunks_of_any_size(case: Given) -> None:
    whole = case.compared()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "CHUNK", 1)  # A row each.
        check(case.compared(), whole)
