"""One figure for all candidates of a problem, until it is worn out, old, or the device has drifted."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from kerneldojo.judging.reference_times import ReferenceTimes


def test_a_reference_time_is_kept_until_it_is_worn_out() -> None:
    kept = ReferenceTimes(most_uses=2)
    assert kept.settle("k", 100.0, (99.0, 101.0)) == (100.0, (99.0, 101.0))
    assert [kept.settle("k", 101.0, (98.0, 104.0))[0] for _ in range(2)] == [100.0, 100.0]
    assert not kept.has("k")
    assert kept.settle("k", 101.0, (98.0, 104.0))[0] == 101.0


def test_a_reference_time_lapses_with_age() -> None:
    kept = ReferenceTimes(longest_seconds=0.05)
    kept.settle("k", 100.0, (99.0, 101.0))
    assert kept.has("k")
    time.sleep(0.1)
    assert not kept.has("k")


@settings(deadline=None, max_examples=100)
@given(st.floats(1, 1e6), st.floats(0, 0.5), st.floats(1, 1e6), st.floats(0, 0.5))
def test_what_is_used_agrees_with_what_was_measured_or_is_lower(
    first: float, spread: float, then: float, wide: float
) -> None:
    kept = ReferenceTimes()
    one = (first * (1 - spread), first * (1 + spread))
    other = (then * (1 - wide), then * (1 + wide))
    kept.settle("k", first, one)
    used, interval = kept.settle("k", then, other)
    assert interval[0] <= other[1], "nobody has a slower reference than was measured"
    assert used in (first, then)
    drifted = one[1] < other[0] or other[1] < one[0]
    assert kept.has("k") != drifted


SHARP, SLOW = (99.0, 101.0), (148.0, 152.0)


def test_who_slows_a_reference_gains_nothing_by_it() -> None:
    kept = ReferenceTimes()
    kept.settle("k", 100.0, SHARP)
    assert kept.settle("k", 150.0, SLOW) == (100.0, SHARP)
    assert not kept.has("k"), "the next one's is measured sharply"
    assert kept.settle("k", 100.5, (100.0, 101.0))[0] == 100.5
    assert kept.has("k") and kept.kept_us("k") == 100.5, "it was that candidate's doing"


def test_a_time_that_is_worn_out_still_bounds_what_is_credited() -> None:
    """Else whoever slows its reference would only have to be the one that it is measured anew for."""
    kept = ReferenceTimes(most_uses=1, remembered_seconds=0.2)
    kept.settle("k", 100.0, SHARP)
    kept.settle("k", 100.0, SHARP)
    assert not kept.has("k")
    assert kept.settle("k", 150.0, SLOW) == (100.0, SHARP)
    assert kept.settle("k", 100.2, SHARP) == (100.2, SHARP), "measured anew"
    assert kept.has("k")
    time.sleep(0.3)
    assert kept.settle("k", 150.0, SLOW) == (150.0, SLOW), "nobody knows any more"


def test_a_device_that_has_become_slower_has_a_new_time_with_the_second_that_says_so() -> None:
    kept = ReferenceTimes()
    kept.settle("k", 100.0, SHARP)
    kept.settle("k", 150.0, SLOW)
    assert kept.settle("k", 200.0, (199.0, 201.0)) == (100.0, SHARP), "another says something else"
    assert kept.settle("k", 200.0, (180.0, 220.0)) == (100.0, SHARP), "this one is not sure"
    assert kept.settle("k", 199.5, (199.0, 200.0)) == (199.5, (199.0, 200.0))
    assert kept.kept_us("k") == 199.5


def test_a_device_that_has_become_quicker_is_believed_at_once() -> None:
    kept = ReferenceTimes()
    kept.settle("k", 100.0, SHARP)
    assert kept.settle("k", 50.0, (49.0, 51.0)) == (50.0, (49.0, 51.0))
    assert not kept.has("k"), "it was not measured sharply"


def test_what_slow_cores_did_to_a_reference_is_no_drift_and_is_not_kept() -> None:
    """Else a candidate whose own cores were quick would be held against a reference that launched slowly."""
    kept = ReferenceTimes()
    assert kept.settle("k", 26.0, (25.9, 26.1), is_slowed=True)[0] == 26.0, "nothing better is known"
    assert not kept.has("k")
    kept.settle("k", 17.7, (17.6, 17.8))
    assert kept.settle("k", 26.0, (25.0, 27.0), is_slowed=True)[0] == 17.7
    assert kept.settle("k", 17.75, (17.74, 17.76), is_slowed=True)[0] == 17.7, "sharper, but not to be kept"
    assert kept.has("k")
    assert kept.settle("k", 26.0, (25.0, 27.0))[0] == 17.7, "on quick cores it is a drift, if the next one says so too"
    assert not kept.has("k")
    assert kept.settle("k", 26.0, (25.9, 26.1))[0] == 26.0


def test_a_kept_time_that_is_too_long_is_no_better_for_slow_cores() -> None:
    kept = ReferenceTimes()
    kept.settle("k", 26.0, (25.9, 26.1))
    assert kept.settle("k", 20.0, (19.0, 21.0), is_slowed=True)[0] == 20.0
    assert not kept.has("k")
