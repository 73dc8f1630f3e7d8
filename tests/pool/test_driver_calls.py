"""The account of driver calls: whoever is done first has the driver, and what calls are charged adds up."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from driver_calls import RECORD, charges

SPANS = st.tuples(st.integers(0, 50), st.integers(1, 20))
"""Start and length."""


def calls(spans: list[tuple[int, int]]) -> np.ndarray:
    return np.array([(0x2A, 0, start, took, 0) for start, took in spans], dtype=RECORD)


def covered(spans: list[tuple[int, int]]) -> set[int]:
    """Units of time in which at least one span is."""
    return {unit for start, took in spans for unit in range(start, start + took)}


@given(st.lists(SPANS, min_size=1, max_size=12), st.lists(SPANS, max_size=4))
def test_charges_add_up_to_the_time_in_which_somebody_was_in_the_driver(
    spans: list[tuple[int, int]], windows: list[tuple[int, int]]
) -> None:
    bounds = np.array([(start, start + took) for start, took in windows], dtype="i8").reshape(-1, 2)
    between, within = charges(calls(spans), bounds)
    busy, is_open = covered(spans), covered(windows)
    assert 1e6 * between.sum() == pytest.approx(len(busy - is_open))
    assert 1e6 * within.sum() == pytest.approx(len(busy & is_open))
    for place, (_, took) in enumerate(spans):
        assert 1e6 * (between[place] + within[place]) <= took + 1e-6


def test_who_waits_for_another_is_not_charged_for_it() -> None:
    between, within = charges(calls([(0, 10), (2, 12)]), np.array([(12, 20)], dtype="i8"))
    assert (1e6 * between).tolist() == pytest.approx([10, 2])
    assert (1e6 * within).tolist() == pytest.approx([0, 2])
