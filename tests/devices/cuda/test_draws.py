"""Secret draws lie where they may, and anywhere there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerneldojo.devices.cuda import draws


@given(limits=st.lists(st.integers(1, 2**53), min_size=1, max_size=20))
def test_numbers_are_below_their_limits(limits: list[int]) -> None:
    each = np.array(limits, dtype=np.int64)
    found = draws.below(each, len(each))
    assert found.dtype == np.int64
    assert ((found >= 0) & (found < each)).all()
    assert (draws.below(limits[0], 50) < limits[0]).all()


@given(limit=st.integers(1, 2**53))
def test_the_largest_number_that_can_be_drawn_is_below_any_limit(limit: int) -> None:
    largest = np.float64((2**53 - 1) * 2.0**-53)
    assert int(largest * np.int64(limit)) < limit


def test_all_numbers_come_about_equally_often() -> None:
    counts = np.bincount(draws.below(10, 100_000), minlength=10)
    assert len(counts) == 10 and (np.abs(counts - 10_000) < 600).all(), "six standard deviations"
    assert 0 <= draws.uniforms(1000).min() < 0.1 and 0.9 < draws.uniforms(1000).max() < 1
    assert not np.array_equal(draws.uniforms(100), draws.uniforms(100))


@pytest.mark.parametrize("count", [0, 1, 40])
def test_an_order_has_each_once(count: int) -> None:
    assert sorted(draws.order(count).tolist()) == list(range(count))
    assert len(draws.uniforms(count)) == len(draws.below(3, count)) == count


def test_each_place_of_an_order_is_as_likely_as_another() -> None:
    first: Any = [int(draws.order(5)[0]) for _ in range(2000)]
    assert (np.abs(np.bincount(first, minlength=5) - 400) < 110).all()
