"""Intervals of paired differences: coverage by simulation, with an effect and with none; and what is known by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from proof.bootstrap import band, paired, ratio, student, tails


def simulated(generator: np.random.Generator, effect: float, seeds: int, problems: int) -> np.ndarray:
    """Differences of shares of 4 samples a cell, whose effect varies with the seed and with the problem."""
    cell = effect + 0.04 * generator.standard_normal((seeds, 1)) + 0.06 * generator.standard_normal((1, problems))
    base = generator.beta(1, 2, (1, problems))
    treatment = generator.binomial(4, np.clip(base + cell, 0, 1)) / 4
    return treatment - generator.binomial(4, np.clip(base, 0, 1), (seeds, problems)) / 4


def truth(effect: float) -> float:
    """What the mean difference of such an experiment is on average, clipping included."""
    return float(simulated(np.random.default_rng(12345), effect, 1500, 1500).mean())


@pytest.mark.parametrize("effect", [0.0, 0.1])
def test_the_interval_covers_the_truth_as_often_as_it_says(effect: float) -> None:
    generator = np.random.default_rng(7)
    true, rounds, covered, found = truth(effect), 300, 0, 0
    for number in range(rounds):
        got = paired(simulated(generator, effect, 8, 48), seed=number, num_draws=1500)
        assert got is not None
        covered += got.low <= true <= got.high
        found += got.excludes_zero
    # 95 % are meant; three standard errors of this simulation are 3.8 points, and it may err to the safe side.
    assert 0.92 <= covered / rounds <= 0.99
    if effect:
        assert found / rounds > 0.9  # 10 points are seen with 8 seeds and 48 problems
    else:
        assert found / rounds < 0.09


def test_the_plain_percentiles_would_be_too_narrow_for_few_seeds() -> None:
    low, high = tails(8)
    assert low == pytest.approx(0.00574, abs=2e-5) and high == pytest.approx(1 - low)
    assert tails(4)[0] < tails(8)[0] < tails(1000)[0] < 0.025


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(1, 12.7062), (2, 4.30265), (7, 2.36462), (8, 2.30600), (60, 2.0003)]
)
def test_quantiles_of_student_are_those_of_the_tables(degrees: int, quantile: float) -> None:
    assert student(0.975, degrees) == pytest.approx(quantile, abs=1e-4)


def test_missing_cells_count_nowhere() -> None:
    table = np.array([[0.1, 0.3, np.nan], [np.nan, 0.5, np.nan]])
    got = paired(table)
    assert got is not None and got.value == pytest.approx(0.3)
    assert got.by_seed == pytest.approx((0.2, 0.5))
    assert paired(np.full((2, 2), np.nan)) is None


def test_one_seed_has_no_interval() -> None:
    got = paired(np.array([[0.1, 0.2]]))
    assert got is not None and got.value == pytest.approx(0.15)
    assert math.isinf(got.low) and not got.excludes_zero


def test_a_ratio_of_means_is_paired() -> None:
    below = np.array([[0.1, 0.4], [0.2, 0.6], [0.3, 0.2]])
    value, low, high = ratio(3 * below, below)
    assert [value, low, high] == pytest.approx([3, 3, 3])


def test_a_band_leaves_missing_seeds_out() -> None:
    mean, low, high = band(np.array([[1.0, 1.0], [3.0, np.nan]]))
    assert mean.tolist() == [2.0, 1.0]
    assert high[0] - mean[0] == pytest.approx(12.7062, abs=1e-3) and np.isnan(low[1])
