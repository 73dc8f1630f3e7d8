"""How verdicts are divided among devices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerneldojo.pool.placement import evenly, lanes_of_gpu, lanes_of_workers


@given(st.integers(0, 500), st.integers(1, 16))
def test_all_are_given_out_as_evenly_as_can_be(num: int, parts: int) -> None:
    shares = evenly(num, parts)
    assert sum(shares) == num and len(shares) == parts
    assert max(shares) - min(shares) <= 1 and shares == sorted(shares, reverse=True)


@given(st.integers(0, 500), st.integers(1, 16))
def test_workers_are_few_and_evenly_busy(num: int, most: int) -> None:
    lanes = lanes_of_workers(num, most)
    assert sum(lanes) == num and all(0 < one <= most for one in lanes)
    assert len(lanes) == -(-num // most)


@pytest.mark.parametrize(
    ("told", "cores", "lanes"), [(None, 1, 1), (None, 4, 2), (None, 9, 4), (None, 16, 8), (None, 96, 8), (10, 16, 10)]
)
def test_a_gpu_has_as_many_verdicts_at_once_as_its_cores_can_serve(told: int | None, cores: int, lanes: int) -> None:
    assert lanes_of_gpu(told, cores) == lanes
