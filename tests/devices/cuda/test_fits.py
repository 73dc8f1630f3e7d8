import random
from contextlib import nullcontext
from dataclasses import replace
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerneldojo.devices.cuda import charges, fits
from kerneldojo.devices.cuda.fits import Window
from kerneldojo.devices.cuda.lengths import longest_window, plan_lengths
from kerneldojo.devices.cuda.series import Series
from kerneldojo.devices.cuda.window_rounds import SELDOM, Effort, Rounds


def spread(values: list[float]) -> float:
    """How far repeated measurements of the same thing lie apart."""
    return (max(values) - min(values)) / median(values)


def windows(per_call: float, overhead: float, noise: float, count: int = 36, longest: int = 64, seed: int = 0):
    chance = random.Random(seed)
    lengths = plan_lengths(longest, count, [chance.random() for _ in range(2 * count)])
    return [Window(n, overhead + n * per_call + chance.gauss(0, noise)) for n in lengths]


@given(
    per_call=st.floats(0.5, 1e5), overhead=st.floats(0, 1000), longest=st.integers(2, 64), seed=st.integers(0, 10**6)
)
@settings(max_examples=50, deadline=None)
def test_slope_of_a_clean_line_is_exact(per_call: float, overhead: float, longest: int, seed: int) -> None:
    fit = fits.fit(windows(per_call, overhead, 0.0, longest=longest, seed=seed))
    assert fit.per_call_us == pytest.approx(per_call, rel=1e-6, abs=1e-6)
    assert fit.overhead_us == pytest.approx(overhead, abs=1e-3 + 1e-6 * per_call * longest)
    low, high = fit.interval_us
    assert low <= fit.per_call_us <= high


def test_a_fifth_of_disturbed_windows_moves_the_slope_by_less_than_a_percent() -> None:
    clean = windows(36.0, 340.0, 8.0, count=48)
    chance = random.Random(1)
    dirty = [
        Window(w.length, w.wall_us * chance.uniform(1.3, 4)) if index % 5 == 0 else w for index, w in enumerate(clean)
    ]
    assert fits.fit(dirty).per_call_us == pytest.approx(36.0, rel=0.01)


@pytest.mark.parametrize(("count", "least"), [(9, 0.87), (12, 0.89), (36, 0.91)])
def test_interval_covers_the_truth_about_as_often_as_it_says(count: int, least: float) -> None:
    hits = 0
    for seed in range(300):
        low, high = fits.fit(windows(36.0, 340.0, 10.0, count=count, seed=seed)).interval_us
        hits += low <= 36.0 <= high
    assert least <= hits / 300 <= 0.96


def test_the_error_is_half_the_interval_over_the_slope() -> None:
    fit = replace(fits.fit(windows(36.0, 340.0, 0.0)), per_call_us=10.0, interval_us=(9.0, 12.0))
    assert fit.relative_error == 0.15
    assert replace(fit, per_call_us=0.5, interval_us=(0.4, 0.6)).relative_error == pytest.approx(0.2)
    assert replace(fit, per_call_us=0.0).relative_error == replace(fit, per_call_us=-1.0).relative_error == float("inf")


def test_what_a_window_costs_around_its_calls_is_told_by_those_of_one_call_where_there_are_any() -> None:
    fit = replace(fits.fit(windows(36.0, 340.0, 0.0)), per_call_us=36.0, overhead_us=340.0)
    assert replace(fit, single_us=396.0).around_us == 360.0
    assert replace(fit, single_us=None).around_us == 340.0
    assert replace(fit, single_us=30.0).around_us == replace(fit, single_us=None, overhead_us=-3.0).around_us == 0.0


def test_one_window_of_one_call_is_no_end_of_a_line() -> None:
    """Nor are two: a core that hiccups once would tilt it. So others that are short are taken with them."""
    late = [Window(1, 340.0 + 36.0 + 300.0)]
    measured = [Window(n, 340.0 + 36.0 * n) for n in (2, 3, 4, 5, 16, 24, 30, 32)]
    for few in (late, late * 2):
        assert fits.fit(few + measured).per_call_us == pytest.approx(36.0, rel=1e-3)


def test_repeated_fits_of_noise_as_measured_on_an_h200_agree_within_two_percent() -> None:
    slopes = [fits.fit(windows(36.0, 340.0, 12.0, seed=seed)).per_call_us for seed in range(10)]
    assert spread(slopes) < 0.02


def told(seed: int, *, hidden: float = 0.0, noise: float = 12.0, spread: float = 3.0) -> list[Window]:
    """Windows of calls of 36 us, a share of which goes on after "done": at most 16 calls, as few windows as may be."""
    chance = random.Random(seed)
    lengths = plan_lengths(16, 12, [chance.random() for _ in range(24)])
    dones = [25.0 + n * 36.0 * (1 - hidden) + chance.gauss(0, spread) for n in lengths]
    return [
        Window(n, done + n * 36.0 * hidden + 240.0 + chance.gauss(0, noise), done_us=done)
        for n, done in zip(lengths, dones, strict=True)
    ]


def test_what_a_side_says_is_sharper_where_the_clock_bears_it_out() -> None:
    found = [fits.fit(told(seed)) for seed in range(40)]
    assert sum(fit.is_told for fit in found) >= 36
    assert spread([fit.per_call_us for fit in found if fit.is_told]) < 0.025
    by_clock = [fits.fit([Window(w.length, w.wall_us) for w in told(seed)]) for seed in range(40)]
    assert not any(fit.is_told for fit in by_clock)
    assert spread([fit.per_call_us for fit in by_clock]) > 0.05


@pytest.mark.parametrize("hidden", [0.15, 0.5, 1.0])
def test_who_says_done_before_it_is_is_charged_by_the_clock(hidden: float) -> None:
    found = [fits.fit(told(seed, hidden=hidden)) for seed in range(40)]
    assert sum(fit.is_told for fit in found) <= 1
    assert all(fit.per_call_us > 36.0 * 0.9 for fit in found)


def test_nobody_hides_more_than_the_doubt_by_making_the_clock_unsure() -> None:
    """Whoever defers work at random makes the judge's slope unsure; then nothing is believed."""
    for hidden in (0.03, 0.08, 0.2):
        for noise in (5.0, 40.0, 150.0):
            for seed in range(20):
                fit = fits.fit(told(seed, hidden=hidden, noise=noise))
                if fit.is_told:
                    assert fit.per_call_us > 36.0 * (1 - 2 * fits.MOST_DOUBT - fits.BIAS - 0.02)


def test_windows_that_began_on_a_slow_host_are_left_out() -> None:
    """As measured on an H200: a third of the windows 20 to 80 us longer, and contexts as much slower to come in."""
    errors = {True: 0.0, False: 0.0}
    for seed in range(40):
        chance = random.Random(seed)
        lengths = plan_lengths(32, 16, [chance.random() for _ in range(32)])
        slow = [chance.uniform(0.2, 1.0) if chance.random() < 0.35 else 0.0 for _ in lengths]
        done = [30.0 + n * 36.0 + chance.gauss(0, 4) + 80.0 * late for n, late in zip(lengths, slow, strict=True)]
        for is_told in errors:
            primes = [160.0 + chance.gauss(0, 2) + 60.0 * late if is_told else None for late in slow]
            fit = fits.fit(
                [Window(n, d + 230.0, done_us=d, prime_us=p) for n, d, p in zip(lengths, done, primes, strict=True)]
            )
            errors[is_told] = max(errors[is_told], abs(fit.per_call_us / 36.0 - 1))
    assert errors[True] < 0.012 < errors[False]


def sleepy(seed: int, share: float, *, is_told: bool) -> list[Window]:
    """Windows of calls of 36 us, a share of them; then each call sleeps 3 ms, also the one before the window."""
    chance = random.Random(seed)
    lengths = plan_lengths(16, 24, [chance.random() for _ in range(48)])
    found = []
    for number, n in enumerate(lengths):
        sleep = 3000.0 if number >= share * len(lengths) else 0.0
        done = 30.0 + n * (36.0 + sleep) + chance.gauss(0, 4)
        prime = 160.0 + sleep + chance.gauss(0, 2) if is_told else None
        found.append(Window(n, done + 230.0, done_us=done, prime_us=prime))
    return found


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize(("share", "is_paid"), [(0.3, True), (0.55, True), (0.7, True), (0.95, False), (1.0, False)])
def test_who_is_slow_in_many_windows_pays_for_it(share: float, is_paid: bool, is_told: bool) -> None:
    """A twentieth may be the host's doing, or a tenth; whoever sleeps in more is not as quick as when it does not."""
    for seed in range(40):
        fit = fits.fit(sleepy(seed, share, is_told=is_told))
        assert fit.is_told != is_paid, "what a side says is no mean of what it took"
        charged = charges.no_less(fit.per_call_us, fit.interval_us, fit.mean_us)
        assert charged > 10 * 36.0 if is_paid else charged < 1.1 * 36.0


def test_a_blurred_figure_counts_by_the_end_that_does_the_candidate_no_favour() -> None:
    assert charges.no_less(10.0, (9.0, 11.0), 30.0) == charges.no_more(10.0, (9.0, 11.0)) == 10.0
    assert charges.no_less(10.0, (4.0, 13.0), 30.0) == 13.0
    assert charges.no_less(10.0, (4.0, 130.0), 30.0) == 30.0, "no call costs more in the mean"
    assert charges.no_less(-2.0, (-5.0, 1.0), 30.0) == 30.0
    assert charges.no_more(10.0, (4.0, 13.0)) == 4.0
    assert charges.no_more(-2.0, (-5.0, 1.0)) < 0, "nothing was measured"


@given(noise=st.floats(0, 2000), longest=st.integers(2, 32), seed=st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_no_noise_makes_a_charge_negative_or_more_than_the_windows_took(noise: float, longest: int, seed: int) -> None:
    measured = [
        Window(one.length, max(1.0, one.wall_us)) for one in windows(36.0, 300.0, noise, longest=longest, seed=seed)
    ]
    fit = fits.fit(measured)
    charged = charges.no_less(fit.per_call_us, fit.interval_us, fit.mean_us)
    assert charged > 0
    if charges.is_blurred(fit.per_call_us, fit.interval_us):
        assert charged <= sum(one.wall_us for one in measured) / sum(one.length for one in measured)


def test_a_host_that_is_always_slow_costs_no_windows() -> None:
    usual = windows(36.0, 340.0, 4.0)
    primed = [Window(w.length, w.wall_us, prime_us=160.0 if index % 3 else 400.0) for index, w in enumerate(usual)]
    assert fits.fit(primed).num_windows == 24
    primed = [Window(w.length, w.wall_us, prime_us=400.0 if index % 3 else 160.0) for index, w in enumerate(usual)]
    assert fits.fit(primed).num_windows == len(usual)


def test_windows_are_kept_where_a_quick_host_alone_would_leave_no_line() -> None:
    usual = windows(36.0, 340.0, 4.0)
    primed = [Window(w.length, w.wall_us, prime_us=160.0) for w in usual]
    unknown = [primed[0], *usual[1:]]
    assert fits.fit(unknown) == fits.fit(usual), "nobody knows how quick it was in all but one"
    longest = max(w.length for w in usual)
    of_one_length = [Window(longest, 340.0 + 36.0 * longest, prime_us=160.0)] * len(usual)
    slow = [replace(w, prime_us=400.0) for w in primed]
    assert fits.fit(of_one_length + slow).num_windows == 2 * len(usual)


def test_who_works_before_the_clock_in_some_windows_gains_nothing() -> None:
    """In fewer than half of them, so that no median shows it; those began as if on a slow host, and are left out."""
    for seed in range(40):
        chance = random.Random(seed)
        measured = []
        for n in plan_lengths(16, 24, [chance.random() for _ in range(48)]):
            ahead = 36.0 * n if chance.random() < 0.45 else 0.0
            done = 30.0 + n * 36.0 - ahead + chance.gauss(0, 4)
            primed = 160.0 + ahead + chance.gauss(0, 2)
            measured.append(Window(n, done + 230.0, done_us=done, prime_us=primed))
        assert fits.fit(measured).per_call_us > 34.0


@pytest.mark.parametrize("share", [0.3, 0.5, 0.8])
def test_a_launching_core_that_hiccups_moves_the_slope_little(share: float) -> None:
    """As seen on a busy host: most windows are longer by 20 to 200 us, wherever in them that happens."""
    for seed in range(20):
        chance = random.Random(seed)
        measured = []
        for n in plan_lengths(75, 24, [chance.random() for _ in range(48)]):
            late = 20.0 + chance.expovariate(1 / 60.0) if chance.random() < share else 0.0
            done = 70.0 + n * 35.0 + late + chance.gauss(0, 4)
            measured.append(Window(n, done + 240.0 + chance.gauss(0, 10), done_us=done, prime_us=230.0))
        assert fits.fit(measured).per_call_us == pytest.approx(35.0, rel=0.03)


def test_what_reading_many_samples_adds_is_known_from_whom_the_judge_trusts() -> None:
    """Reading took 232 us after one call and 258 us after twelve, on an H200: 2 us a call, which nobody hid."""

    def reading(seed: int, per_call: float, hidden: float = 0.0) -> list[Window]:
        chance = random.Random(seed)
        lengths = plan_lengths(12, 24, [chance.random() for _ in range(48)])
        dones = [25.0 + n * per_call * (1 - hidden) + chance.gauss(0, 3) for n in lengths]
        walls = [
            d + n * (per_call * hidden + 2.0) + 232.0 + chance.gauss(0, 5) for n, d in zip(lengths, dones, strict=True)
        ]
        return [Window(n, w, done_us=d) for n, w, d in zip(lengths, walls, dones, strict=True)]

    adds = [fits.fit(reading(seed, 56.0), is_trusted=True).reading_us for seed in range(20)]
    assert median(adds) == pytest.approx(2.0, abs=0.2)
    for seed in range(20):
        trusted = fits.fit(reading(seed, 56.0), is_trusted=True)
        assert trusted.is_told
        assert trusted.reading_us == pytest.approx(2.0, abs=0.9)
        mine = reading(seed + 100, 36.0)
        assert not fits.fit(mine).is_told
        honest = fits.fit(mine, reading_us=trusted.reading_us)
        assert honest.is_told
        assert honest.per_call_us == pytest.approx(36.0, rel=0.02)
        hiding = fits.fit(reading(seed + 100, 36.0, hidden=0.1), reading_us=trusted.reading_us)
        assert not hiding.is_told
        assert hiding.per_call_us > 36.0


def test_one_length_is_not_enough_for_a_slope() -> None:
    with pytest.raises(ValueError, match="two lengths"):
        fits.fit([Window(3, 10.0), Window(3, 11.0)])


def test_disturbed_windows_are_left_out() -> None:
    good = windows(10.0, 50.0, 0.0)
    bad = [Window(64, 1e9, undisturbed=False)] * 100
    assert fits.fit(good + bad).per_call_us == pytest.approx(10.0)


@given(host=st.floats(2, 200), device=st.floats(2, 5000), seed=st.integers(0, 1000))
@settings(max_examples=100, deadline=None)
def test_an_honest_call_is_never_found_batched(host: float, device: float, seed: int) -> None:
    """Calls in a row overlap host and device: each costs the larger, one alone costs both."""
    overhead = 330.0
    chance = random.Random(seed)
    lengths = plan_lengths(64, 36, [chance.random() for _ in range(72)])
    honest = [Window(n, overhead + min(host, device) + n * max(host, device) + chance.gauss(0, 8)) for n in lengths]
    verdict = charges.charge(fits.fit(honest), overhead_us=overhead, overhead_error_us=4.0)
    assert not verdict.batched
    assert verdict.per_call_us == pytest.approx(max(host, device), rel=0.05, abs=1.0)


def test_batching_is_found_and_charged_like_one_call_alone() -> None:
    """All pending calls in one launch: a window costs what one call costs, and a little for each output."""
    charged = []
    for seed in range(20):
        chance = random.Random(seed)
        lengths = plan_lengths(64, 36, [chance.random() for _ in range(72)])
        cheating = [Window(n, 330.0 + 60.0 + 0.8 * n + chance.gauss(0, 5)) for n in lengths]
        verdict = charges.charge(fits.fit(cheating), overhead_us=330.0, overhead_error_us=3.0)
        assert verdict.batched
        assert "alone" in verdict.evidence
        charged.append(verdict.per_call_us)
    assert median(charged) == pytest.approx(60.8, rel=0.2), "by the shortest of twelve windows"
    assert min(charged) > 30.0


def turns(seed: int, count: int) -> list[float]:
    """By turns that last for several windows, the device takes 240 or 310 us to come back to the judge."""
    chance = random.Random(seed)
    state, found = 0.0, []
    for _ in range(count):
        state = 70.0 - state if chance.random() < 0.1 else state
        found.append(state)
    return found


def beside(seed: int, alone: float, per_call: float, after: list[float]) -> list[Window]:
    """Windows of one call and of many, by turns."""
    chance = random.Random(seed)
    lengths = [1 if index % 3 == 0 else chance.randint(8, 12) for index in range(len(after))]
    return [
        Window(n, 240.0 + alone + (n - 1) * per_call + turn + chance.gauss(0, 6), turn=index)
        for index, (n, turn) in enumerate(zip(lengths, after, strict=True))
    ]


@pytest.mark.parametrize("is_relaxed", [False, True])
def test_one_call_alone_is_told_by_neighbours(is_relaxed: bool) -> None:
    """An honest kernel is not charged for a busy host, though both turns and launches vary; a batching one is.

    Also where the reference, once it is known well enough, plays in one round of three.
    """
    wrongly = 0
    for seed in range(40):
        after = turns(seed, 36)
        trusted = beside(seed, 82.0, 56.0, after)
        if is_relaxed:
            chance = random.Random(seed)
            trusted = [window for index, window in enumerate(trusted) if index < 12 or chance.random() < 1 / SELDOM]
        honest = beside(seed + 1000, 74.0, 36.0, [turn + random.Random(seed).uniform(0, 30) for turn in after])
        batching = beside(seed + 2000, 300.0, 3.0, after)
        around = fits.fit(trusted)
        for windows, is_batched in ((honest, False), (batching, True)):
            paired = charges.alone(windows, trusted, around.per_call_us)
            found = charges.charge(fits.fit(windows), around.around_us, around.single_error_us, paired)
            if is_batched:
                assert found.batched
                assert found.per_call_us == pytest.approx(275.0, rel=0.3)
            else:
                wrongly += found.batched
    assert wrongly <= 1
    pairs = [[Window(1, wall, turn=turn) for turn in range(2)] for wall in (2.0, 1.0)]
    assert charges.alone(*pairs, 1.0) is None


def blurring(seed: int, alone: float, per_call: float, sleep: float) -> tuple[list[Window], list[Window]]:
    """Windows of one who computes all calls at once and sleeps at random where there is one, and of a reference."""
    after = turns(seed, 36)
    chance = random.Random(seed + 3000)
    cheating = [
        replace(window, wall_us=window.wall_us + (chance.uniform(0, sleep) if window.length == 1 else 0))
        for window in beside(seed + 2000, alone, per_call, after)
    ]
    return cheating, beside(seed, 34.0, 14.0, after)


def test_who_sleeps_at_random_where_there_is_one_call_does_not_hide_by_it() -> None:
    """What blurs the shortest window of one call does not blur what its neighbours say."""
    found = 0
    for seed in range(40):
        cheating, trusted = blurring(seed, alone=150.0, per_call=3.0, sleep=1500.0)
        mine, around = fits.fit(cheating), fits.fit(trusted)
        assert mine.single_us is not None
        paired = charges.alone(cheating, trusted, around.per_call_us)
        found += charges.charge(mine, around.around_us, around.single_error_us, paired).batched
    assert found >= 38


def test_calls_that_have_looked_batched_are_looked_at_as_long_as_there_is_time() -> None:
    """Or who is noisy enough would be let off at the first look that happens to be in its favour."""
    cheating, trusted = blurring(1, alone=150.0, per_call=3.0, sleep=0.0)
    honest = beside(5, 34.0, 14.0, turns(1, 36))
    sides = [
        SimpleNamespace(name=name, is_trusted=name == "reference", is_decisive=True, every=1)
        for name in ("contestant", "reference")
    ]
    series = {"contestant": Series(windows=honest), "reference": Series(windows=trusted, is_trusted=True)}
    effort = Effort(target_error=1e-9, seconds=0.2, min_calls=0)
    round_: Any = Rounds(None, sides, None, series, None, nullcontext, random.SystemRandom(), effort)  # type: ignore[arg-type]
    for windows, is_over in ((honest, True), (cheating, False), (honest, False)):
        series["contestant"].windows[:] = windows
        round_.count += 4
        assert round_.is_over(0.3) == is_over
    assert round_.is_over(0.61)


def test_a_reference_that_is_known_well_enough_plays_less_often_and_by_chance() -> None:
    sides = [
        SimpleNamespace(name=name, is_trusted=name == "reference", is_decisive=True, every=1)
        for name in ("contestant", "reference")
    ]
    series = {name: Series(windows=windows(80.0, 250.0, 3.0)) for name in ("contestant", "reference")}
    round_: Any = Rounds(None, sides, None, series, None, nullcontext, random.SystemRandom(), Effort(target_error=0.01))  # type: ignore[arg-type]
    assert all(round_._plays(side, 9) for side in sides * 50), "nobody has been looked at yet"
    round_.relax()
    mine, theirs = ([round_._plays(side, 9) for _ in range(900)] for side in sides)
    assert all(mine), "whose figure is asked for plays in all rounds"
    assert 200 < sum(theirs) < 400
    assert len({tuple(theirs[start : start + 6]) for start in range(0, 900, 6)}) > 20, "no pattern"
    assert all(round_._plays(side, 1) for side in sides * 50), "what one call alone costs is told next to others"
    series["reference"].windows[:] = windows(80.0, 250.0, 300.0)
    round_.count += 4
    round_.relax()
    assert all(round_._plays(side, 9) for side in sides * 50), "it has become doubtful"


def test_a_figure_that_says_little_goes_on_for_a_while() -> None:
    """Rather than to be taken once more from the beginning."""
    side = SimpleNamespace(name="contestant", is_trusted=False, is_decisive=True, every=1)
    series = {"contestant": Series(windows=windows(80.0, 250.0, 2.0))}
    effort = Effort(target_error=1e-9, seconds=0.2, min_calls=0)
    round_: Any = Rounds(None, [side], None, series, None, nullcontext, random.SystemRandom(), effort)  # type: ignore[arg-type,list-item]
    assert not round_.is_over(0.1) and round_.is_over(0.3), "its time is up"
    series["contestant"].windows[:] = windows(80.0, 250.0, 4000.0)
    round_.count += 4
    found = round_._fitted()["contestant"]
    assert charges.is_blurred(found.per_call_us, found.interval_us)
    assert not round_.is_over(0.3)
    assert not round_.is_over(0.59)
    assert round_.is_over(0.61), "at some time everybody else goes on"


def test_a_reference_whose_figure_is_kept_from_before_plays_less_often_whatever_its_windows_say() -> None:
    side = SimpleNamespace(name="reference", is_trusted=True, is_decisive=False, every=1)
    series = {"reference": Series(windows=windows(80.0, 250.0, 300.0)[:7])}
    round_: Any = Rounds(
        None, [side], None, series, None, nullcontext, random.SystemRandom(), Effort(target_error=0.01)
    )  # type: ignore[arg-type,list-item]
    round_.relax()
    assert all(round_._plays(side, 9) for _ in range(50)), "what a window costs around its calls is told by some of its"
    series["reference"].windows[:] = windows(80.0, 250.0, 300.0)[:8]
    round_.relax()
    assert 200 < sum(round_._plays(side, 9) for _ in range(900)) < 400
    assert all(round_._plays(side, 1) for _ in range(50))


def test_coverage_is_cut_to_what_vanishes_in_silence() -> None:
    assert charges.covered(0.97, full_us=100.0, silenced_us=95.0, error_us=1.0) == pytest.approx(0.06)
    assert charges.covered(0.9, full_us=100.0, silenced_us=5.0, error_us=1.0) == 0.9
    assert charges.covered(0.5, full_us=100.0, silenced_us=130.0, error_us=1.0) == 0.0


@given(longest=st.integers(1, 256), count=st.integers(1, 60), seed=st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_planned_lengths_stay_in_range_and_differ(longest: int, count: int, seed: int) -> None:
    chance = random.Random(seed)
    lengths = plan_lengths(longest, count, [chance.random() for _ in range(2 * count)])
    assert len(lengths) == count
    assert all(1 <= n <= longest for n in lengths)
    if longest >= 2 and count >= 2:
        assert len(set(lengths)) >= 2


def test_of_three_windows_in_a_row_one_has_one_call_and_one_is_long() -> None:
    chance = random.Random(0)
    lengths = plan_lengths(80, 999, [chance.random() for _ in range(2 * 999)])
    threes = [lengths[at : at + 3] for at in range(0, 999, 3)]
    assert all(1 in three and max(three) > 70 for three in threes)
    assert {max(three) for three in threes} == {*range(71, 81)}, "nobody knows how long the longest is"
    middle = [sorted(three)[1] for three in threes]
    assert min(middle) < 8 and max(middle) > 70 and len(set(middle)) > 60, "anywhere between"
    assert len({three.index(1) for three in threes}) == 3, "in no order"
    assert set(plan_lengths(2, 999, [chance.random() for _ in range(2 * 999)])) == {1, 2}


def test_longest_window_follows_speed_and_memory() -> None:
    assert longest_window([40.0, 60.0], num_sets=64) == 64
    assert longest_window([40.0, 60.0], num_sets=128) == 75
    assert longest_window([40.0, 60.0], num_sets=16) == 16
    assert longest_window([40.0, 160.0], num_sets=64) == 45, "a slow side is not to take all the time"
    assert longest_window([0.0, 200.0], num_sets=64) == 45, "whoever says that it was done at once"
    assert longest_window([2700.0, 2700.0], num_sets=64) == 4
    assert longest_window([1e6], num_sets=1) == 2


def test_host_bound_below_eighty_percent() -> None:
    assert charges.host_bound(5.0, 12.0)
    assert not charges.host_bound(11.0, 12.0)
