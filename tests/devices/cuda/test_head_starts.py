"""Head starts: who computes before its calls are timed gains nothing, and hosts that are slow convict nobody."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kerneldojo.devices.cuda import head_starts
from kerneldojo.devices.cuda.fits import Window
from kerneldojo.devices.cuda.series import Series
from kerneldojo.devices.cuda.series import charge as charge_of
from kerneldojo.devices.cuda.series import fits as fits_of


def test_work_before_the_clock_shows() -> None:
    def primed(prime: float, done: float, *, is_warmed: bool = True) -> list[Window]:
        return [
            Window(n, done * n + 240, done_us=done * n, prime_us=prime, is_warmed=is_warmed) for n in (1, 8, 1, 12, 1)
        ]

    trusted = primed(240.0, 82.0)
    assert abs(head_starts.early_us(primed(205.0, 70.0), trusted)) < head_starts.EARLY_US
    assert abs(head_starts.early_us(primed(1100.0, 900.0), trusted)) < head_starts.EARLY_US, (
        "a slow call, made honestly"
    )
    cheat = primed(1100.0, 20.0)
    assert head_starts.early_us(cheat, trusted) > head_starts.most_early_us(cheat, trusted)
    assert head_starts.early_us([], trusted) == 0.0

    slow = primed(160.0, 9000.0, is_warmed=False)
    assert head_starts.early_us(primed(170.0, 5000.0, is_warmed=False), slow) == 10.0, (
        "no call before the clock to take off"
    )
    hiding = primed(2000.0, 20_000.0, is_warmed=False)
    assert head_starts.early_us(hiding, slow) > head_starts.most_early_us(hiding, slow), "nor to hide it"


def test_on_a_slow_host_nobody_is_convicted_for_a_call_that_was_cold() -> None:
    """Where cores take twice as long, a call that takes 45 us next time took 350 before the clock."""

    def series(prime_us: float, call_us: float) -> list[Window]:
        return [
            Window(n, call_us * n + 400, done_us=call_us * n, prime_us=prime_us, is_warmed=True, taken_us=80.0)
            for n in (1, 30, 17) * 8
        ]

    reference, honest = series(350.0, 40.0), series(675.0, 45.0)
    early_us = head_starts.early_us(honest, reference)
    assert early_us > head_starts.MOST_EARLY_US
    assert early_us < head_starts.most_early_us(honest, reference)
    slow_calls = series(1100.0, 250.0)
    assert head_starts.early_us(slow_calls, reference) < head_starts.most_early_us(slow_calls, reference)

    thirty_ahead = series(350.0 + 30 * 45.0, 3.0)
    assert head_starts.early_us(thirty_ahead, reference) > head_starts.most_early_us(thirty_ahead, reference)


def test_one_slow_call_of_the_reference_does_not_make_its_candidate_early() -> None:
    """Where its time is known it plays seldom: of three windows of one call two took six times as long."""
    honest = [
        Window(n, 50.0 * n + 300, done_us=50.0 * n, prime_us=250.0, is_warmed=True, taken_us=40.0)
        for n in (1, 30, 17) * 8
    ]
    reference = [
        Window(n, done_us + 300, done_us=done_us, prime_us=250.0, is_warmed=True, taken_us=40.0)
        for n, done_us in ((1, 60.0), (30, 1800.0), (1, 330.0), (17, 1020.0), (1, 340.0), (29, 1740.0))
    ]
    assert head_starts.early_us(honest, reference) < head_starts.EARLY_US
    assert head_starts.early_us(honest, reference[2:3] + reference[4:]) > head_starts.EARLY_US, "but for the first"


def ahead(
    per_call_us: float, ahead_us: float, *, every: int = 1, where: str = "primed", honest: float = 1.0
) -> list[Window]:
    """As many calls as fit into some time are computed before a window's clock runs, in one of so many windows."""
    random = np.random.default_rng(3)
    found: list[Window] = []
    for turn in range(60):
        length = (1, 30 - turn % 4, 17)[turn % 3]
        extra = ahead_us if turn % every == 0 and (where != "taken" or length > 1) else 0.0
        spared = int(extra // per_call_us) * honest
        walls = 300.0 + per_call_us * max(0.0, length - spared) + random.normal(0, 0.5)
        before = {"primed": (extra, 0.0), "taken": (0.0, extra)}[where]
        found.append(
            Window(
                length,
                walls,
                done_us=walls - 290.0,
                prime_us=140.0 + before[0] + random.normal(0, 2.0),
                taken_us=40.0 + before[1] + random.normal(0, 2.0),
                turn=turn,
            )
        )
    return found


@pytest.mark.parametrize("where", ["primed", "taken"])
@pytest.mark.parametrize("every", [1, 2, 4])
def test_who_computes_ahead_gains_no_more_than_what_any_host_is_allowed(where: str, every: int) -> None:
    """While its context is brought in, or when the signal has come already and it has not said that its calls begin."""
    reference = Series(windows=ahead(50.0, 0.0), is_trusted=True)
    for ahead_us in (0.0, 90.0, 150.0, 240.0, 1000.0):
        cheat = Series(windows=ahead(15.0, ahead_us, every=every, where=where))
        found = fits_of({"contestant": cheat, "reference": reference})["contestant"]
        assert found.per_call_us > 15.0 - head_starts.EARLY_US / 15 - 0.2, "windows of seventeen calls are the shortest"
        assert found.per_call_us < 15.0 + 0.2 + (1000.0 / 15 if ahead_us > 500 else 0.0)


def test_a_host_that_is_slow_now_and_then_costs_an_honest_kernel_nothing() -> None:
    reference = Series(windows=ahead(50.0, 0.0), is_trusted=True)
    for where in ("primed", "taken"):
        honest = Series(windows=ahead(15.0, 160.0, every=3, where=where, honest=0.0))
        found = fits_of({"contestant": honest, "reference": reference})["contestant"]
        assert found.per_call_us == pytest.approx(15.0, rel=0.02)
    slow = Series(windows=ahead(15.0, 160.0, honest=0.0))
    found = fits_of({"contestant": slow, "reference": reference})["contestant"]
    assert 15.0 < found.per_call_us < 15.0 + (160.0 - head_starts.EARLY_US) / 15, (
        "where it always is so, what is beyond"
    )
    assert head_starts.early_us(slow.windows, reference.windows) == pytest.approx(160.0, abs=3.0)


def test_who_says_too_soon_that_its_calls_begin_gains_nothing() -> None:
    """In windows of one call, that they seem to take longer, or in all."""
    reference = Series(windows=ahead(50.0, 0.0), is_trusted=True)
    for most in (1, 30):
        cheat = Series(
            windows=[
                replace(window, wall_us=window.wall_us + 40.0, done_us=(window.done_us or 0.0) + 40.0, taken_us=0.0)
                if window.length <= most
                else window
                for window in ahead(15.0, 0.0)
            ]
        )
        found = fits_of({"contestant": cheat, "reference": reference})["contestant"]
        assert found.per_call_us > 15.0 - 0.2
        assert head_starts.early_us(cheat.windows, reference.windows) == pytest.approx(0.0, abs=5.0)


def test_one_call_alone_is_what_it_costs_from_the_signal_on() -> None:
    """What a call is computed from comes with the signal: to compute it before its calls begin takes time, too."""

    def batched(length: int, *, hides: bool) -> Window:
        first = 13.0
        calls = 1.5 * (length - 1) + (0.0 if hides else first)
        return Window(length, 300.0 + calls, done_us=calls, prime_us=150.0, taken_us=40.0 + (first if hides else 0.0))

    reference = Series(
        windows=[
            Window(n, 300.0 + 20.0 * n, done_us=20.0 * n, prime_us=150.0, taken_us=40.0) for n in [1, 30, 17] * 12
        ],
        is_trusted=True,
    )
    for hides in (False, True):
        both = {
            "contestant": Series(windows=[batched(n, hides=hides) for n in [1, 30, 17] * 12]),
            "reference": reference,
        }
        found = charge_of(both, fits_of(both), "contestant", "reference")
        assert found.batched
        assert found.per_call_us == pytest.approx(13.0, abs=0.5)


def test_who_has_the_device_work_while_the_caches_are_flushed_has_a_head_start() -> None:
    def series(flush_us: float, per_call_us: float = 40.0) -> list[Window]:
        return [
            Window(
                n, per_call_us * n + 400, done_us=per_call_us * n, prime_us=150.0, taken_us=40.0, prepare_us=flush_us
            )
            for n in (1, 30, 17) * 8
        ]

    trusted = series(110.0)
    for flush_us in (60.0, 110.0, 160.0, 210.0):
        assert head_starts.early_us(series(flush_us), trusted) == 0.0
    sharing = series(1100.0, 4.0)
    assert head_starts.early_us(sharing, trusted) > head_starts.most_early_us(sharing, trusted)
    some = series(400.0, 4.0)
    assert head_starts.EARLY_US < head_starts.early_us(some, trusted) < head_starts.most_early_us(some, trusted)
    assert head_starts.paid_us(some, trusted) > 0.0


def test_what_a_side_says_pays_as_what_the_clock_says_does() -> None:
    """Else whoever works before the clock would be timed by its own word, which has not paid."""
    usual = [Window(n, 300.0 + n, done_us=10.0 + n, prime_us=100.0, taken_us=40.0) for n in (1, 8, 16)]
    late = [replace(one, prime_us=100.0 + head_starts.EARLY_US + 25.0) for one in usual]
    paid = head_starts.with_time_before(late, usual)
    assert [one.wall_us - old.wall_us for one, old in zip(paid, late, strict=True)] == pytest.approx([0.0, 25.0, 25.0])
    assert [(one.done_us or 0) - (old.done_us or 0) for one, old in zip(paid, late, strict=True)] == pytest.approx(
        [0.0, 25.0, 25.0]
    )
    silent = [replace(one, done_us=None) for one in late]
    assert all(one.done_us is None for one in head_starts.with_time_before(silent, usual))
    assert head_starts.with_time_before(usual, usual) == usual
    assert head_starts.with_time_before([], usual) == []


def test_who_says_too_soon_that_it_begins_is_taken_to_begin_later_by_both_clocks() -> None:
    usual = [Window(n, 300.0 + n, done_us=10.0 + n, prime_us=100.0, taken_us=40.0) for n in (1, 8, 16)]
    soon = [replace(one, taken_us=15.0, wall_us=one.wall_us + 25.0, done_us=one.length + 35.0) for one in usual]
    assert head_starts.with_time_before(soon, usual) == usual
    silent = [replace(one, done_us=None) for one in soon]
    assert head_starts.with_time_before(silent, usual) == [replace(one, done_us=None) for one in usual]


def test_where_it_is_not_known_what_came_before_nobody_pays() -> None:
    usual = [Window(n, 300.0 + n, prime_us=100.0) for n in (1, 8, 16)]
    late = [replace(one, prime_us=1e4) for one in usual]
    unknown = [late[0], replace(late[1], prime_us=None), late[2]]
    for mine, theirs in ((unknown, usual), (late, unknown), (late, [])):
        assert head_starts.with_time_before(mine, theirs) == mine
        assert head_starts.early_us(mine, theirs) == 0.0
        assert head_starts.paid_us(mine, theirs) == 0.0
    assert head_starts.most_early_us(late, []) == head_starts.MOST_EARLY_US


def test_the_call_before_the_clock_is_taken_off_where_some_windows_had_one() -> None:
    """What it takes is told by windows of one call: by what the side says, or by the clock where it says nothing."""
    usual = [Window(n, 300.0 + 30.0 * n, done_us=30.0 * n, prime_us=130.0, is_warmed=True) for n in (1, 8, 16)]
    mine = [Window(n, 300.0 + 90.0 * n, done_us=90.0 * n, prime_us=190.0, is_warmed=n > 1) for n in (1, 8, 16)]
    assert head_starts.early_us(mine, usual) == 0.0, "100 us are left of each"
    assert head_starts.most_early_us(mine, usual) == max(head_starts.MOST_EARLY_US, 3.0 * 90.0)
    silent = [replace(one, done_us=None, prime_us=490.0) for one in mine]
    assert head_starts.early_us(silent, usual) == 0.0
    assert head_starts.most_early_us(silent, usual) == 3.0 * 390.0
    longer = [replace(one, prime_us=190.0 + 700.0) for one in mine]
    slow = [replace(one, prime_us=130.0 + 900.0) for one in usual]
    assert head_starts.most_early_us(longer, slow) == 1000.0, "the runner took as long"


def test_what_is_paid_is_spread_over_the_calls_that_long_windows_have_more() -> None:
    usual = [Window(n, 300.0 + n, prime_us=100.0) for n in (2, 8, 18)]
    late = [replace(one, prime_us=100.0 + head_starts.EARLY_US + 32.0) for one in usual]
    assert head_starts.paid_us(late, usual) == 2.0
    assert head_starts.paid_us(late[:1], usual) == 32.0
    assert head_starts.paid_us(usual, usual) == head_starts.paid_us([], usual) == 0.0
