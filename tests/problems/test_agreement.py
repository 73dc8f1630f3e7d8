"""Whether two runs of a reference gave the same, at the edges of what is called so."""

from __future__ import annotations

import math

import pytest
import torch

from kerneldojo.problems import distributions
from kerneldojo.problems.agreement import (
    NEARLY_AS_EXACT,
    NEARLY_AS_LARGE,
    ROUNDING,
    as_exact,
    as_finite,
    as_large,
    is_noise,
    relative_errors,
    same,
    scales_along,
)

ONES = torch.ones(100)


def changed(*places: int, to: float) -> torch.Tensor:
    """Ones, but for these places."""
    x = torch.ones(100)
    x[list(places)] = to
    return x


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_floats_are_the_same_within_a_part_of_their_rms(dtype: torch.dtype) -> None:
    """One of a hundred ones that is off by a half: the rms of errors is a twentieth."""
    x, y = ONES.to(dtype), changed(7, to=1.5).to(dtype)
    assert same([x], [y], 0.0501) and not same([x], [y], 0.0499)
    assert same([8 * x], [8 * y], 0.0501) and not same([8 * x], [8 * y], 0.0499)
    assert same([x], [x.clone()], 0.0)
    assert same([x], [x.double()], 0.0), "of another type, too"


def test_every_output_has_to_be_the_same_and_of_the_same_shape() -> None:
    assert same([ONES, ONES], [ONES, ONES], 0.0) and same([], [], 0.0)
    assert not same([ONES, ONES], [ONES, -ONES], 0.5)
    assert not same([ONES], [ONES, ONES], 0.5)
    assert not same([ONES], [ONES.view(10, 10)], 0.5)
    assert same([torch.zeros(0)], [torch.zeros(0)], 0.0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_so_many_may_be_numbers_in_one_alone_and_the_rest_is_held_against_the_rest(value: float) -> None:
    assert same([ONES], [changed(1, 2, to=value)], 0.02) and not same([ONES], [changed(1, 2, 3, to=value)], 0.02)
    assert same([changed(1, 2, to=value)], [ONES], 0.02) and not same([changed(1, 2, 3, to=value)], [ONES], 0.02)
    odd = changed(1, to=value)
    odd[2] = 1.5
    assert not same([odd], [ONES], 0.02), "one is off by a half beside it"
    assert same([torch.full((5,), value)], [torch.full((5,), value, dtype=torch.float64)], 0.0), "there is nothing else"


def test_of_integers_a_part_may_differ() -> None:
    x = torch.arange(100)
    y = x.clone()
    y[:3] = -1
    assert same([x], [y], 0.03) and not same([x], [y], 0.029)
    assert relative_errors([x, ONES], [y, ONES]) == [0.03, 0.0]


def test_what_is_nothing_beside_the_native_outputs_is_noise() -> None:
    assert is_noise([1e-3 * ONES], [ONES], 1.01e-3) and not is_noise([1e-3 * ONES], [ONES], 0.99e-3)
    assert not is_noise([1e-3 * ONES, ONES], [ONES, ONES], 1e-2), "each"
    assert not is_noise([1e-3 * ONES], [ONES.view(10, 10)], 1e-2)


def test_errors_are_in_parts_of_the_rms_of_the_truth() -> None:
    assert relative_errors([4 * ONES], [4 * changed(7, to=1.5)]) == [pytest.approx(0.05)]
    off = changed(7, to=1.5)
    off[8] = math.nan
    assert relative_errors([ONES], [off]) == [pytest.approx(0.5 / math.sqrt(99))], "of those that are numbers"
    assert relative_errors([0 * ONES], [ONES]) == [0.0], "of nothing there are no parts"


def test_an_output_may_be_a_little_smaller_than_on_the_problems_own_inputs() -> None:
    assert as_large([ONES, ONES], [NEARLY_AS_LARGE * ONES, 9 * ONES])
    assert not as_large([ONES, ONES], [0.99 * NEARLY_AS_LARGE * ONES, 9 * ONES])
    assert as_large([torch.arange(9)], [torch.zeros(9, dtype=torch.int64)])


def test_errors_may_be_some_times_as_large_and_a_rounding_is_none() -> None:
    assert as_exact([1e-5, 0.0], [NEARLY_AS_EXACT * 1e-5, ROUNDING])
    assert not as_exact([1e-5, 0.0], [1.01 * NEARLY_AS_EXACT * 1e-5, ROUNDING])
    assert not as_exact([1e-5, 0.0], [1e-5, 1.01 * ROUNDING])


def test_nothing_new_may_be_no_number() -> None:
    infinite = changed(3, to=math.inf)
    assert as_finite([ONES, infinite], [ONES, infinite.clone()])
    assert not as_finite([ONES], [infinite]) and not as_finite([infinite], [ONES])
    nan = changed(3, to=math.nan)
    assert not as_finite([ONES], [nan]) and not as_finite([nan], [nan]), "whatever there was before"
    assert as_finite([torch.arange(3)], [torch.arange(3)])
    assert not as_finite([ONES], [ONES, ONES]) and not as_finite([ONES], [ONES.view(10, 10)])


@pytest.mark.parametrize(
    ("degree", "does"), [(0.0, False), (1.0, True), (1.5, False), (2.0, True), (2.05, True), (4.0, True), (5.0, False)]
)
def test_whole_powers_of_a_scale_are_told(degree: float, does: bool) -> None:
    scaled = 2.0 ** (degree * distributions.SCALE_BITS) * ONES.double()
    assert scales_along([ONES.double()], [scaled]) == does
    assert not scales_along([ONES.double(), ONES], [scaled, ONES]), "all have to"
    assert not scales_along([0 * ONES], [0 * ONES]) and not scales_along([torch.arange(3)], [torch.arange(3)])
