"""What a call is charged with, by arithmetic that can be done by hand: the figures of windows are given."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from kerneldojo.devices.cuda import charges
from kerneldojo.devices.cuda.charges import PLAINLY, SYSTEMATIC_US
from kerneldojo.devices.cuda.fits import Fit, Window

TEN = Fit(
    per_call_us=10.0,
    interval_us=(9.5, 10.5),
    overhead_us=100.0,
    single_us=120.0,
    single_error_us=3.0,
    num_windows=24,
    num_calls=200,
)
"""A call of ten microseconds; a window of one takes 120."""


def alone_us(alone: float, *, doubt: float = 0.0, slowness: float = 1.0) -> charges.Charge:
    """Charged where one call alone takes so long, by its shortest window."""
    measured = replace(TEN, single_us=100.0 + alone, single_error_us=doubt)
    return charges.charge(measured, 100.0, 0.0, None, slowness)


def test_one_call_alone_may_cost_twice_as_much_beyond_doubt() -> None:
    limit = 2 * 10.5 + SYSTEMATIC_US
    assert not alone_us(limit).batched
    found = alone_us(limit + 0.1)
    assert found.batched and found.per_call_us == pytest.approx(limit + 0.1)
    assert not alone_us(limit + 2.9, doubt=3.0).batched
    found = alone_us(limit + 3.1, doubt=3.0)
    assert found.per_call_us == pytest.approx(limit + 3.1)
    assert found.interval_us == pytest.approx((limit + 0.1, limit + 6.1))
    assert found.evidence == "a call alone takes 29.1 us, calls in a row 10.0 us each"


def test_on_slow_cores_it_may_cost_more_and_never_more_than_plainly() -> None:
    assert not alone_us(3.0 * 10.5 + SYSTEMATIC_US, slowness=1.5).batched
    assert alone_us(3.0 * 10.5 + SYSTEMATIC_US + 0.1, slowness=1.5).batched
    assert not alone_us(PLAINLY * 10.5 + SYSTEMATIC_US, slowness=9.0).batched
    assert alone_us(PLAINLY * 10.5 + SYSTEMATIC_US + 0.1, slowness=9.0).batched


def test_what_neighbours_say_has_to_bear_it_out_unless_it_is_plain() -> None:
    measured = replace(TEN, single_us=100.0 + 36.0, single_error_us=3.0)
    overhead = 100.0, 4.0  # So the shortest is known to 5 us.
    assert not charges.charge(measured, *overhead, (25.0, 0.0)).batched
    found = charges.charge(measured, *overhead, (34.0, 2.0))
    assert found.batched
    assert (found.per_call_us, found.interval_us) == (34.0, (32.0, 36.0)), "the less of both, with its own doubt"
    found = charges.charge(measured, *overhead, (39.0, 2.0))
    assert (found.per_call_us, found.interval_us) == (36.0, (31.0, 41.0))
    # A blurred shortest and sharp neighbours: by weights of 1 / (55^2 + 5^2) and 1 / (1 + 5^2).
    blurred = replace(TEN, single_us=100.0 + 20.0, single_error_us=55.0)
    found = charges.charge(blurred, 100.0, 0.0, (60.0, 1.0))
    weights = 1 / (55.0**2 + SYSTEMATIC_US**2), 1 / (1.0 + SYSTEMATIC_US**2)
    together = (20.0 * weights[0] + 60.0 * weights[1]) / sum(weights)
    assert found.batched and found.per_call_us == pytest.approx(together)
    assert found.interval_us == pytest.approx((together - 1.0, together + 1.0)), "as sharp as the sharpest"


def test_an_interval_is_never_below_nothing() -> None:
    measured = replace(TEN, per_call_us=0.0, interval_us=(-30.0, -20.0), single_us=100.0 + 5.0, single_error_us=8.0)
    assert charges.charge(measured, 100.0, 0.0).interval_us == (0.0, 13.0)


def test_without_a_window_of_one_call_the_slope_is_what_counts() -> None:
    measured = replace(TEN, single_us=None, single_error_us=math.inf)
    found = charges.charge(measured, 0.0, 0.0, (1000.0, 0.0))
    assert (found.per_call_us, found.interval_us, found.batched) == (10.0, (9.5, 10.5), False)


def test_a_figure_is_blurred_from_a_fifth_on() -> None:
    assert not charges.is_blurred(10.0, (8.0, 12.0))
    assert charges.is_blurred(10.0, (8.0, 12.1))
    assert charges.is_blurred(0.0, (0.0, 0.0)) and charges.is_blurred(-1.0, (-1.0, -1.0))
    assert not charges.is_blurred(0.5, (0.45, 0.55))
    assert charges.no_less(0.5, (0.1, 0.9), 5.0) == 0.9


def test_neighbours_are_windows_of_one_call_in_the_same_round() -> None:
    """Ten more than the runner's at the median, whose calls take fifty."""
    trusted = [Window(1, 300.0 + 7 * turn, turn=turn) for turn in range(6)]
    more = [10.0, 12.0, 8.0, 10.0, 10.5]
    measured = [Window(1, trusted[turn].wall_us + extra, turn=turn) for turn, extra in enumerate(more)]
    others = [
        Window(9, 1e6, turn=5),
        Window(1, 1e6, turn=5, undisturbed=False),
        Window(1, 1e6, turn=7),
        Window(1, 1e6),
    ]
    found = charges.alone(measured + others, [*trusted, Window(3, 0.0, turn=7), Window(1, 0.0)], 50.0)
    assert found is not None
    scatter = 1.4826 * 0.5
    assert found == pytest.approx((60.0, 1.96 * 1.2533 * scatter / math.sqrt(5)))
    assert charges.alone(measured[:3] + others, trusted, 50.0) is not None
    assert charges.alone(measured[:2] + others, trusted, 50.0) is None
    started_late = [replace(one, wall_us=one.wall_us - 30.0, taken_us=30.0) for one in measured]
    assert charges.alone(started_late, trusted, 50.0) == pytest.approx(found), "from the signal on"
