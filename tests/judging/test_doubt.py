"""One series of windows convicts nobody: what looks like cheating is timed once more."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import timed_series

from kerneldojo.devices.cuda import charges, head_starts
from kerneldojo.devices.cuda.clock import Watch
from kerneldojo.devices.cuda.fits import Window
from kerneldojo.devices.cuda.series import Series, fits
from kerneldojo.devices.cuda.trials import Trials
from kerneldojo.judging import figures
from kerneldojo.judging.preparation import Prepared
from kerneldojo.judging.protocol import protocol
from kerneldojo.judging.reference_times import ReferenceTimes, Settled, reference_key
from kerneldojo.judging.verdict import Findings
from kerneldojo.schema import Candidate, Problem

series = partial(timed_series.series, noise=0.2, prime_noise=2.0)


def doubt(
    mine: Series,
    *,
    compulsory_bytes: int = 64 << 20,
    slowness: float = 1.0,
    theirs_us: float = 50.0,
    known: bool = False,
    device_us: float | None = None,
    theirs: Series | None = None,
    is_hopeless: bool = False,
) -> str:
    both = {"contestant": mine, "reference": theirs or series(theirs_us, 140.0, seed=1)}
    result = Trials(series=both, watch=Watch([]), num_rounds=48, seconds=0.2, is_hopeless=is_hopeless)
    findings = Findings(
        Problem(name="p", source="pass"), Candidate(source="pass"), protocol("standard"), device="cuda:0"
    )
    findings.compulsory_bytes = compulsory_bytes
    bench = timed_series.bench(SimpleNamespace(has=lambda _: known))
    prepared = Prepared.__new__(Prepared)
    prepared.result = result
    why = figures.doubt(bench, prepared, findings, slowness)
    return why or figures.slow_launches(bench, prepared, findings, slowness, device_us)


@pytest.mark.parametrize(("left_out", "are_timed"), [("contestant", True), ("reference", False)])
def test_who_brings_its_context_in_as_it_likes_is_timed_all_the_same(left_out: str, are_timed: bool) -> None:
    """By turns it takes a tenth and ten times as long as usual: no window of its own is like the others."""
    both = {"contestant": series(20.0, 110.0), "reference": series(50.0, 140.0, seed=1)}
    both["reference"].is_trusted = True
    both[left_out].windows[:] = [
        replace(window, undisturbed=not turn) for turn, window in enumerate(both[left_out].windows)
    ]
    result = Trials(series=both, watch=Watch([]), num_rounds=48, seconds=0.2)
    assert set(fits(both)) == {"contestant", "reference"} - {left_out}, "while there will be more"
    assert (set(result.fitted) == {"contestant", "reference"}) == are_timed
    if are_timed:
        assert result.fitted["contestant"].per_call_us == pytest.approx(20.0, rel=0.02)


@pytest.mark.parametrize("left_out", ["contestant", "reference"])
def test_where_nothing_was_measured_there_is_nothing_to_doubt(left_out: str) -> None:
    """It is a ruling of its own, after the series."""
    one = series(20.0, 110.0 + 150.0)
    one.windows[:] = one.windows[:1]
    mine, theirs = (one, series(20.0, 140.0)) if left_out == "contestant" else (series(20.0, 300.0), one)
    assert doubt(mine, theirs=theirs, slowness=2.0) == ""


@pytest.mark.parametrize("num_windows", [10, 48])
def test_a_host_that_stalls_once_makes_times_scatter_where_there_are_few(num_windows: int) -> None:
    """Of ten windows four are long: in one of twenty samples of these most are the one with the stall."""
    mine = series(20.0, 110.0)
    del mine.windows[num_windows:]
    assert doubt(mine) == ""
    mine.windows[3] = replace(mine.windows[3], wall_us=mine.windows[3].wall_us + 300_000.0)
    fit = fits({"contestant": mine})["contestant"]
    charged = charges.no_less(fit.per_call_us, fit.interval_us, fit.mean_us)
    if num_windows == 48:
        assert doubt(mine) == ""
        assert charged == pytest.approx(20.0, rel=0.02)
    else:
        assert "scattered" in doubt(mine)
        assert charged > 1000.0


def test_what_looks_batched_is_timed_again() -> None:
    mine = series(2.0, 110.0)
    mine.windows[:] = [replace(window, wall_us=window.wall_us + 40.0) for window in mine.windows]
    assert doubt(mine, compulsory_bytes=0) == "its calls looked batched"


def test_an_ordinary_series_stands() -> None:
    assert doubt(series(20.0, 110.0)) == ""


@pytest.mark.parametrize(
    ("mine", "num_bytes", "why"),
    [
        (series(20.0, 110.0 + 150.0), 64 << 20, "before the clock"),
        (series(20.0, 110.0), 512 << 20, "faster than the memory"),
        (series(20.0, 110.0, noise=200.0), 64 << 20, "scattered"),
    ],
)
def test_what_looks_like_cheating_or_says_little_is_timed_again(mine: Series, num_bytes: int, why: str) -> None:
    assert why in doubt(mine, compulsory_bytes=num_bytes)


def long_calls(more_us: float) -> Series:
    """None of them is made before the clock, when so much more time passes than usual."""
    mine = series(50_000.0, 110.0 + more_us)
    mine.windows[:] = [replace(window, is_warmed=False) for window in mine.windows]
    return mine


def test_of_who_is_far_too_slow_nobody_asks_how_much_but_its_reference_has_to_be_known() -> None:
    mine = series(50_000.0, noise=200_000.0)
    assert "scattered" in doubt(mine)
    assert doubt(mine, is_hopeless=True) == ""
    pays, is_early = long_calls(more_us=150.0), long_calls(more_us=400.0)
    assert "before the clock" in doubt(pays)
    assert doubt(pays, is_hopeless=True) == ""
    assert "before the clock" in doubt(is_early, is_hopeless=True), "that would convict it"
    scattered = series(50.0, noise=500.0, seed=1)
    assert "reference's times scattered" in doubt(mine, theirs=scattered, is_hopeless=True)
    assert doubt(mine, theirs=scattered, is_hopeless=True, known=True) == ""


@pytest.mark.parametrize(
    ("mine_us", "theirs_us", "slowness", "known", "is_doubtful"),
    [
        (20.0, 50.0, 1.2, False, False),
        (20.0, 50.0, 1.3, False, True),
        (200.0, 20.0, 1.3, False, True),
        (200.0, 20.0, 1.3, True, False),  # The reference's figure is of earlier verdicts.
        (200.0, 200.0, 2.0, False, False),  # No launch binds what is as slow as that.
    ],
)
def test_what_launches_may_bind_is_timed_again_where_cores_were_slow(
    mine_us: float, theirs_us: float, slowness: float, known: bool, is_doubtful: bool
) -> None:
    why = doubt(series(mine_us, 110.0), slowness=slowness, theirs_us=theirs_us, known=known)
    assert ("cores took" in why) == is_doubtful


def test_what_the_memory_binds_is_not_what_launches_bind() -> None:
    """At 4.8 TB/s 80 MB take 17 us."""
    assert doubt(series(20.0, 110.0), compulsory_bytes=80 << 20, slowness=1.3, known=True) == ""
    assert "cores took" in doubt(series(40.0, 110.0), compulsory_bytes=80 << 20, slowness=1.3, known=True)


def test_what_its_own_kernels_take_is_not_what_launches_bind() -> None:
    """By its profile; what a reference of unknown time takes that does not tell."""
    mine = series(20.0, 110.0)
    assert doubt(mine, slowness=1.3, known=True, device_us=17.0) == ""
    assert "cores took" in doubt(mine, slowness=1.3, known=True, device_us=13.0)
    assert "cores took" in doubt(mine, slowness=1.3, known=False, device_us=17.0)
    assert doubt(mine, slowness=1.3, known=False, theirs_us=90.0, device_us=17.0) == ""


@pytest.mark.parametrize(
    ("noise", "more_us", "is_doubtful"), [(0.2, 90.0, True), (20.0, 90.0, True), (25.0, 90.0, False)]
)
def test_what_is_paid_before_the_clock_is_timed_once_more_where_the_figure_says_as_little(
    noise: float, more_us: float, is_doubtful: bool
) -> None:
    """30 us of which a long window pays, 2 a call: that is within what a busy host leaves open anyway."""
    why = doubt(series(20.0, 110.0 + more_us, noise=noise), compulsory_bytes=0)
    assert ("before the clock" in why) == is_doubtful


def test_who_would_be_convicted_for_its_time_before_the_clock_is_timed_once_more_whatever_its_figure_says() -> None:
    assert "before the clock" in doubt(series(20.0, 110.0 + 400.0, noise=60.0), compulsory_bytes=0)


def test_time_before_the_clock_is_paid_for_from_where_it_is_more_than_hosts_need() -> None:
    """On slow hosts honest kernels take so long, too: nobody is convicted for it, and nobody gains by it."""
    for more_us, beyond_us in ((40.0, 0.0), (150.0, 150.0 - head_starts.EARLY_US)):
        mine = series(20.0, 110.0 + more_us)
        both = {"contestant": mine, "reference": replace(series(50.0, 140.0, seed=1), is_trusted=True)}
        paid = fits(both)["contestant"].per_call_us - fits({"contestant": mine})["contestant"].per_call_us
        assert beyond_us / 16 <= paid <= beyond_us / 6, "calls that long windows have more"
        assert ("before the clock" in doubt(mine)) == bool(beyond_us), "a second series says what is paid"


def batching(*, alone_us: float, sleep_us: float = 0.0, each_us: float = 1.0) -> Series:
    """Of one who computes all calls at once, and sleeps at random where there is one."""
    mine, chance = series(each_us, 110.0), random.Random(7)
    for number, window in enumerate(mine.windows):
        slept = chance.uniform(0, sleep_us) if window.length == 1 else 0.0
        mine.windows[number] = replace(window, wall_us=window.wall_us + alone_us + slept)
    return mine


def filled(
    mine: Series,
    slowness: float,
    *,
    theirs_us: float = 50.0,
    reference_times: ReferenceTimes | None = None,
    is_hopeless: bool = False,
) -> Findings:
    both = {"contestant": mine, "reference": replace(series(theirs_us, 140.0, seed=1), is_trusted=True)}
    result = Trials(series=both, watch=Watch([]), num_rounds=48, seconds=0.2, is_hopeless=is_hopeless)
    findings = Findings(
        Problem(name="p", source="pass"), Candidate(source="pass"), protocol("standard"), device="cuda:0"
    )
    match = SimpleNamespace(
        seen=SimpleNamespace(first_call_seconds=0.1), contestant=SimpleNamespace(construction_seconds=0.1)
    )
    bench = SimpleNamespace(reference_times=reference_times, clock=SimpleNamespace(peak_bandwidth=lambda: 4.8e12))
    figures._fill(bench, findings, match, result, slowness)  # type: ignore[arg-type]
    return findings


@pytest.mark.parametrize("is_hopeless", [False, True])
def test_a_verdict_says_that_it_was_timed_in_few_calls(is_hopeless: bool) -> None:
    notes = filled(long_calls(more_us=0.0), slowness=1.0, is_hopeless=is_hopeless).notes
    assert [note for note in notes if "few calls" in note] == [figures.FEW_TRIALS] * is_hopeless


def few_windows(*took_us: float) -> list[Window]:
    """Two of one call and two of two; the second of each on a host that was slow just before."""
    return [
        Window(length, wall_us, prime_us=300.0 if turn % 2 else 110.0, turn=turn)
        for turn, (length, wall_us) in enumerate(zip((1, 1, 2, 2), took_us, strict=True))
    ]


@pytest.mark.parametrize(("is_hopeless", "interval_ms"), [(False, (50.0, 50.0)), (True, (50.0, 52.0))])
def test_the_interval_of_few_windows_holds_each_of_them(is_hopeless: bool, interval_ms: tuple[float, float]) -> None:
    """Those on a quick host happen to say the same: no more is known for that."""
    windows = few_windows(50_000.0, 52_000.0, 100_000.0, 104_000.0)
    timing = filled(Series(windows), slowness=1.0, is_hopeless=is_hopeless).timing
    assert timing is not None and timing.median_ms == pytest.approx(50.0, rel=0.001)
    assert timing.confidence_interval_ms == pytest.approx(interval_ms, rel=0.001)


def test_few_windows_that_scatter_are_charged_by_the_slowest() -> None:
    """A call takes 50 ms by those on a quick host, and 80 by the others: no more than in the mean of all."""
    windows = few_windows(50_000.0, 80_000.0, 100_000.0, 160_000.0)
    timing = filled(Series(windows), slowness=1.0, is_hopeless=True).timing
    assert timing is not None and timing.median_ms == pytest.approx(65.0, rel=0.001)


def known(per_call_us: float) -> ReferenceTimes:
    """Of the problem that is `filled` in, and confirmed."""
    times = ReferenceTimes()
    findings = Findings(
        Problem(name="p", source="pass"), Candidate(source="pass"), protocol("standard"), device="cuda:0"
    )
    interval_us = (0.99 * per_call_us, 1.01 * per_call_us)
    times.confirm(reference_key(findings), Settled(per_call_us, interval_us), (per_call_us, interval_us))
    return times


def test_a_reference_on_slow_cores_is_held_against_its_own_time_on_quick_ones() -> None:
    """A candidate of 20 us against 17.7 that take 26 then is no faster for it."""
    found = filled(series(20.0, 110.0), slowness=1.8, theirs_us=26.0, reference_times=known(17.7))
    assert found.speedup == pytest.approx(17.7 / 20.0, rel=0.03)


@pytest.mark.parametrize("reference_times", [None, known(17.7), ReferenceTimes()], ids=["none", "known", "unknown"])
def test_a_reference_that_is_slower_than_anybody_knows_is_credited_only_when_it_is_confirmed(
    reference_times: ReferenceTimes | None,
) -> None:
    """What no launch binds may have drifted, or been slowed by the candidate."""
    found = filled(series(20.0, 110.0), slowness=1.8, theirs_us=90.0, reference_times=reference_times)
    assert found.naive_speedup == pytest.approx(90.0 / 20.0, rel=0.03)
    if reference_times is None:
        assert found.speedup == found.naive_speedup
    else:
        assert found.speedup is None


@pytest.mark.parametrize("sleep_us", [0.0, 500.0])
def test_batched_calls_are_charged_like_one_alone_however_little_all_of_them_took(sleep_us: float) -> None:
    """What one alone costs is blurred if it sleeps; the mean of all windows, a bound for others, is none for it."""
    findings = filled(batching(alone_us=150.0, sleep_us=sleep_us), slowness=1.0)
    assert findings.timing is not None and findings.timing.median_ms is not None
    assert 1000 * findings.timing.median_ms > 140.0
    assert findings.speedup is not None and findings.speedup < 0.4
    assert any("single calls" in note for note in findings.notes)


def test_calls_that_are_launched_cold_do_not_look_batched_where_cores_are_slow() -> None:
    """As seen on an H100 whose cores took 2.2 times as long as at their quickest: 48 us, and 142 alone."""
    cold = batching(alone_us=94.0, each_us=48.0)
    assert "batched" in doubt(cold, known=True)
    assert doubt(cold, known=True, slowness=2.2, compulsory_bytes=200 << 20) == ""
    assert "batched" in doubt(batching(alone_us=250.0, each_us=48.0), known=True, slowness=2.2)
    assert filled(cold, slowness=2.2).timing.median_ms == pytest.approx(0.048, rel=0.02)  # type: ignore[union-attr]
