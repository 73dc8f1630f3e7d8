"""One figure for all candidates of a problem, until it is worn out, old, or the device has drifted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import astuple
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerneldojo.judging import reference_times
from kerneldojo.judging.reference_times import (
    LONGEST_SECONDS,
    MOST_KEPT,
    NOISE,
    REMEMBERED_SECONDS,
    ReferenceTimes,
    Settled,
)

SHARP, SLOW = (99.0, 101.0), (148.0, 152.0)
ALONE = 100.0, SHARP
"""What the reference takes with nobody beside it."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], None]]:
    """Time stands still but for those who call this, with seconds."""
    now = [1000.0]

    def passes(seconds: float) -> None:
        now[0] += seconds

    with monkeypatch.context() as patch:
        patch.setattr(reference_times, "time", SimpleNamespace(monotonic=lambda: now[0]))
        yield passes


def settled(kept: ReferenceTimes, per_call_us: float, interval_us: tuple[float, float], **how: bool) -> Settled:
    return kept.settle("k", per_call_us, interval_us, **how)


def knowing(per_call_us: float, interval_us: tuple[float, float], **how: float) -> ReferenceTimes:
    """Of one figure, which was confirmed."""
    kept = ReferenceTimes(**how)  # type: ignore[arg-type]
    kept.confirm("k", settled(kept, per_call_us, interval_us), (per_call_us, interval_us))
    return kept


def test_what_nobody_knows_is_doubtful_and_is_not_kept_before_it_is_confirmed() -> None:
    kept = ReferenceTimes()
    first = settled(kept, 100.0, SHARP)
    assert first == Settled(100.0, SHARP, is_doubtful=True) and not kept.has("k")
    assert kept.confirm("k", first, (101.0, (98.0, 104.0))) == Settled(100.0, SHARP), "the sharper of two that agree"
    assert kept.kept_us("k") == 100.0


def test_who_slows_a_reference_that_nobody_knows_gains_nothing_by_it() -> None:
    kept = ReferenceTimes()
    assert kept.confirm("k", settled(kept, 150.0, SLOW), ALONE) == Settled(100.0, SHARP)
    assert kept.kept_us("k") == 100.0


def test_nor_does_who_scatters_it() -> None:
    kept = ReferenceTimes()
    assert kept.confirm("k", settled(kept, 150.0, (50.0, 250.0)), ALONE) == Settled(100.0, SHARP)


def test_who_slows_it_only_when_it_is_alone_gains_nothing_by_it() -> None:
    """What it computes on then may be what was left there, where there is no memory to make other inputs from."""
    kept = ReferenceTimes()
    measured = Settled(100.0, (95.0, 105.0))
    assert kept.confirm("k", settled(kept, 100.0, (95.0, 105.0)), (300.0, (299.0, 301.0))) == measured
    assert kept.kept_us("k") == 100.0


def test_a_reference_time_is_kept_until_it_is_worn_out() -> None:
    kept = knowing(100.0, SHARP, most_uses=2)
    assert [settled(kept, 101.0, (98.0, 104.0)) for _ in range(2)] == [Settled(100.0, SHARP)] * 2
    assert not kept.has("k")
    assert settled(kept, 101.0, (98.0, 104.0)).per_call_us == 101.0


def test_a_reference_time_lapses_with_age(clock: Callable[[float], None]) -> None:
    kept = knowing(100.0, SHARP)
    clock(LONGEST_SECONDS)
    assert kept.has("k")
    clock(0.1)
    assert not kept.has("k")


@settings(deadline=None, max_examples=100)
@given(st.floats(1, 1e6), st.floats(0, 0.5), st.floats(1, 1e6), st.floats(0, 0.5), st.booleans())
def test_what_is_used_agrees_with_what_was_measured_or_is_lower_or_is_doubtful(
    first: float, spread: float, then: float, wide: float, is_reused: bool
) -> None:
    one = (first * (1 - spread), first * (1 + spread))
    other = (then * (1 - wide), then * (1 + wide))
    kept = knowing(first, one, is_reused=is_reused)
    used = settled(kept, then, other)
    assert used.interval_us[0] <= other[1], "nobody has a slower reference than was measured"
    assert used.per_call_us in (first, then)
    is_apart = one[1] < other[0]
    is_sharper = other[1] - other[0] < one[1] - one[0]
    assert used.is_doubtful == (is_apart or (then > NOISE * first and (is_sharper or not is_reused)))
    assert kept.has("k") == (is_reused and one[0] <= other[1]), "a lower one is to be measured sharply"


@settings(deadline=None, max_examples=100)
@given(st.floats(1, 1e6), st.floats(0, 0.5), st.floats(1, 1e6), st.floats(0, 0.5))
def test_nobody_is_credited_with_more_than_the_reference_takes_alone(
    then: float, wide: float, alone: float, spread: float
) -> None:
    kept = ReferenceTimes()
    doubtful = settled(kept, then, (then * (1 - wide), then * (1 + wide)))
    used = kept.confirm("k", doubtful, (alone, (alone * (1 - spread), alone * (1 + spread))))
    assert not used.is_doubtful and used.interval_us[0] <= alone * (1 + spread)
    assert used.per_call_us <= max(doubtful.interval_us[1], doubtful.per_call_us), "nor than it was seen to take"


def test_who_slows_a_reference_that_is_known_gains_nothing_by_it() -> None:
    kept = knowing(100.0, SHARP)
    doubtful = settled(kept, 150.0, SLOW)
    assert doubtful.is_doubtful
    assert kept.confirm("k", doubtful, (100.5, (100.0, 101.0))) == Settled(100.0, SHARP), "as it was known"
    assert kept.kept_us("k") == 100.0


def test_nor_does_who_scatters_one_that_is_known() -> None:
    """Its interval reaches the known one's, and it is longer all the same."""
    alone = 100.2, (99.0, 101.4)
    known = {"as it was known": knowing(100.0, SHARP, is_reused=False), "anew": knowing(100.0, SHARP, most_uses=0)}
    for how, kept in known.items():
        doubtful = settled(kept, 120.0, (100.5, 139.5))
        assert doubtful.is_doubtful
        credited = kept.confirm("k", doubtful, alone)
        assert credited == (Settled(*alone) if how == "anew" else Settled(100.0, SHARP)), how
    kept = knowing(100.0, SHARP)
    assert settled(kept, 120.0, (100.5, 139.5)) == Settled(100.0, SHARP), "which stands"


def test_nor_does_who_slows_it_where_it_scatters_when_it_is_alone() -> None:
    kept = ReferenceTimes()
    assert kept.confirm("k", settled(kept, 120.0, (117.0, 123.0)), (105.0, (93.0, 117.5))).per_call_us == 105.0


def test_a_time_that_is_worn_out_still_bounds_what_is_credited(clock: Callable[[float], None]) -> None:
    """Else whoever slows its reference would only have to be the one that it is measured anew for."""
    kept = knowing(100.0, SHARP, most_uses=1)
    settled(kept, 100.0, SHARP)
    assert not kept.has("k")
    assert settled(kept, 150.0, SLOW).is_doubtful
    assert settled(kept, 100.2, SHARP).is_doubtful, "nor would it have to be much slower each time"
    assert settled(kept, 99.8, SHARP) == Settled(99.8, SHARP), "measured anew"
    assert kept.has("k")
    clock(REMEMBERED_SECONDS)
    assert settled(kept, 150.0, SLOW).is_doubtful
    clock(0.1)
    assert settled(kept, 100.0, SHARP).is_doubtful, "nobody knows any more"


def test_a_device_that_has_become_slower_has_a_new_time_as_soon_as_it_is_confirmed() -> None:
    kept = knowing(100.0, SHARP)
    used = kept.confirm("k", settled(kept, 150.0, SLOW), (149.0, (147.0, 151.0)))
    assert used.interval_us[0] > 101.0 and kept.kept_us("k") == used.per_call_us


def test_a_device_that_has_become_quicker_is_believed_at_once() -> None:
    kept = knowing(100.0, SHARP)
    assert settled(kept, 50.0, (49.0, 51.0)) == Settled(50.0, (49.0, 51.0))
    assert not kept.has("k"), "it was not measured sharply"


def test_where_times_are_not_reused_a_lower_one_bounds_from_then_on() -> None:
    kept = knowing(100.0, SHARP, is_reused=False)
    assert settled(kept, 50.0, (49.0, 51.0)) == Settled(50.0, (49.0, 51.0))
    assert not settled(kept, 50.5, (49.5, 51.5)).is_doubtful, "it is known"
    assert settled(kept, 50.5, (49.5, 51.5), is_slowed=True).per_call_us == 50.0, "the quicker of both"
    assert settled(kept, 49.5, (48.5, 50.5), is_slowed=True).per_call_us == 49.5


def test_of_two_that_agree_the_sharper_one_is_kept_and_used() -> None:
    kept = knowing(100.0, (90.0, 110.0))
    assert settled(kept, 96.0, (95.0, 97.0)).per_call_us == 96.0
    assert settled(kept, 98.0, (90.0, 106.0)).per_call_us == 96.0 == kept.kept_us("k")
    wide, alone = Settled(95.0, (85.0, 105.0)), (96.0, (95.5, 96.5))
    assert ReferenceTimes().confirm("k", wide, alone) == Settled(*alone)
    sharp, alone = Settled(95.0, (94.5, 95.5)), (96.0, (86.0, 106.0))
    assert ReferenceTimes().confirm("k", sharp, alone) == sharp


def test_one_that_was_confirmed_by_what_is_known_is_used_up_as_any_other() -> None:
    kept = knowing(100.0, SHARP, most_uses=2)
    for _ in range(2):
        assert kept.has("k")
        assert kept.confirm("k", settled(kept, 150.0, SLOW), ALONE) == Settled(*ALONE)
    assert not kept.has("k")


def test_only_so_many_are_kept() -> None:
    kept = ReferenceTimes()
    keys = [str(i) for i in range(MOST_KEPT + 1)]
    for key in keys:
        kept.confirm(key, kept.settle(key, *ALONE), ALONE)
    assert [key for key in keys if not kept.has(key)] == ["0"]


def test_where_times_are_not_reused_each_verdict_has_its_own_and_is_bounded_all_the_same() -> None:
    kept = knowing(100.0, SHARP, is_reused=False)
    assert not kept.has("k")
    assert settled(kept, 100.8, (100.0, 101.6)) == Settled(100.8, (100.0, 101.6))
    assert settled(kept, 150.0, SLOW).is_doubtful
    assert settled(kept, 50.0, (49.0, 51.0)) == Settled(50.0, (49.0, 51.0)), "sharp, so it is kept"
    assert settled(kept, 100.0, SHARP).is_doubtful


def test_what_slow_cores_did_to_a_reference_is_no_drift_and_is_not_kept() -> None:
    """Else a candidate whose own cores were quick would be held against a reference that launched slowly."""
    kept = knowing(17.7, (17.6, 17.8))
    assert settled(kept, 26.0, (25.0, 27.0), is_slowed=True).per_call_us == 17.7
    assert settled(kept, 17.75, (17.74, 17.76), is_slowed=True).per_call_us == 17.7, "sharper, but not to be kept"
    assert kept.has("k")
    assert settled(kept, 26.0, (25.0, 27.0)).is_doubtful, "on quick cores it is a drift, or somebody's doing"


BESIDE = Settled(26.0, (25.9, 26.1))
"""A reference that launches bind, on slow cores."""


def test_what_slow_cores_did_to_a_reference_that_nobody_knows_is_credited_and_left_out_of_what_is_kept() -> None:
    """Else an honest candidate, which had the same cores, would look slower than it is."""
    kept = ReferenceTimes()
    first = settled(kept, *astuple(BESIDE)[:2], is_slowed=True)
    assert first.is_doubtful
    assert kept.confirm("k", first, (17.7, (17.6, 17.8)), leeway=1.5) == BESIDE
    assert kept.kept_us("k") == 17.7


def test_a_candidate_that_slows_a_reference_on_slow_cores_gains_nothing_by_it() -> None:
    kept = ReferenceTimes()
    alone = 23.4, (23.3, 23.5)
    assert kept.confirm("k", BESIDE, alone, is_slowed=True) == Settled(*alone), "as slow when it was alone"
    assert not kept.has("k"), "of slow cores nothing is kept"
    credited = kept.confirm("k", BESIDE, (15.6, (15.5, 15.7)), leeway=1.5)
    assert credited.per_call_us == pytest.approx(23.4), "as much longer as its cores were slower, and no more"
    assert kept.kept_us("k") == 15.6


@given(
    measured=st.floats(5.0, 200.0),
    alone=st.floats(5.0, 200.0),
    width=st.floats(0.001, 0.5),
    leeway=st.floats(1.0, 3.0),
)
def test_no_leeway_credits_more_than_was_measured_or_than_the_cores_account_for(
    measured: float, alone: float, width: float, leeway: float
) -> None:
    doubtful = Settled(measured, (measured - 0.1, measured + 0.1), is_doubtful=True)
    interval = alone * (1 - width), alone * (1 + width)
    found = ReferenceTimes().confirm("k", doubtful, (alone, interval), leeway=leeway)
    assert found.per_call_us <= measured + 0.1
    assert found.per_call_us <= leeway * interval[1] + 0.1
    assert not found.is_doubtful


def test_a_kept_time_that_is_too_long_is_no_better_for_slow_cores() -> None:
    kept = knowing(26.0, (25.9, 26.1))
    assert settled(kept, 20.0, (19.0, 21.0), is_slowed=True).per_call_us == 20.0
    assert not kept.has("k")


def test_a_time_that_is_kept_with_a_wide_interval_leaves_no_more_room() -> None:
    """An H200 told 84.8 to 89.6 us of a reference that takes 84.9."""
    wide = 84.9, (84.8, 89.6)
    for how in ({"is_reused": False}, {}):
        kept = knowing(*wide, **how)
        doubtful = settled(kept, 88.3, (88.0, 88.6))
        assert doubtful.is_doubtful
        assert kept.confirm("k", doubtful, (84.9, (84.7, 85.1))) == Settled(*wide), "as it was known"
    assert settled(knowing(*wide), 88.3, (80.0, 96.0)) == Settled(*wide), "which stands"


def test_nor_does_what_it_took_alone_with_one() -> None:
    kept = ReferenceTimes()
    assert kept.confirm("k", Settled(88.3, (88.0, 88.6)), (84.9, (84.8, 89.6))) == Settled(84.9, (84.8, 89.6))
    assert kept.confirm("k", Settled(88.3, (88.0, 88.6)), (87.9, (87.8, 88.4))) == Settled(88.3, (88.0, 88.6))
    assert kept.kept_us("k") == 88.3, "a sharp one that was borne out is better than a wide one"


@settings(deadline=None, max_examples=100)
@given(st.data(), st.booleans())
def test_many_who_slow_a_reference_raise_it_no_further_than_one(data: st.DataObject, is_reused: bool) -> None:
    """Alone it takes 100, give or take half of a hundredth. They know all that is known, and wear it out."""
    kept = knowing(100.0, (99.5, 100.5), is_reused=is_reused, most_uses=3)
    for _ in range(40):
        measured_us = data.draw(st.floats(90.0, 120.0))
        width = data.draw(st.floats(0.0, 0.1))
        used = settled(kept, measured_us, ((1 - width) * measured_us, (1 + width) * measured_us))
        if used.is_doubtful:
            alone_us = data.draw(st.floats(99.5, 100.5))
            used = kept.confirm("k", used, (alone_us, (alone_us - 0.5, alone_us + 0.5)))
        assert used.per_call_us <= NOISE * 101.0


def test_nobody_raises_a_time_bit_by_bit() -> None:
    """Two hundredths are noise where intervals meet; where they do not, each step is confirmed."""
    kept = knowing(100.0, SHARP, is_reused=False)
    assert settled(kept, 102.0, (101.5, 102.5)).is_doubtful
    assert not settled(kept, 102.0, (100.5, 103.5)).is_doubtful
    assert settled(kept, 102.1, (100.5, 103.7)).is_doubtful
    assert settled(kept, 100.2, (100.1, 100.3)).per_call_us == 100.2
    assert settled(kept, 102.1, (100.1, 104.1)).is_doubtful, "a sharper one that is higher is used, and not kept"
