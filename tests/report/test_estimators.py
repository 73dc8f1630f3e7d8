from __future__ import annotations

from itertools import combinations, pairwise
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerneldojo.report.estimators import average_at_k, best_at_k, success_at_k

values = st.lists(st.floats(0, 50), min_size=1, max_size=9)


@given(values, st.data())
def test_best_at_k_is_the_mean_over_all_subsets(samples: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(samples)))
    expected = mean(max(subset) for subset in combinations(samples, k))
    assert best_at_k(samples, k) == pytest.approx(expected, abs=1e-9)


@given(values, st.data())
def test_average_at_k_is_the_mean_over_all_subsets(samples: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(samples)))
    assert average_at_k(samples, k) == pytest.approx(mean(mean(subset) for subset in combinations(samples, k)))


@given(st.integers(1, 60), st.data())
def test_zeros_and_ones_give_the_estimator_of_chen_et_al(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    assert best_at_k([1.0] * c + [0.0] * (n - c), k) == pytest.approx(success_at_k(n, c, k), abs=1e-9)


@given(values)
def test_best_of_all_is_the_maximum_and_best_of_one_the_mean(samples: list[float]) -> None:
    assert best_at_k(samples, len(samples)) == max(samples)
    assert best_at_k(samples, 1) == pytest.approx(mean(samples))


@given(values)
def test_best_at_k_never_falls_with_k(samples: list[float]) -> None:
    found = [best_at_k(samples, k) for k in range(1, len(samples) + 1)]
    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(found))


def test_small_numbers_by_hand() -> None:
    assert success_at_k(4, 1, 2) == pytest.approx(1 / 2)  # 3 of the 6 pairs hold the good one
    assert success_at_k(16, 1, 16) == 1.0
    assert best_at_k([0.0, 1.0, 3.0], 2) == pytest.approx((1 + 3 + 3) / 3)


@pytest.mark.parametrize(("n", "k"), [(0, 1), (3, 0), (3, 4)])
def test_more_samples_than_there_are_is_an_error(n: int, k: int) -> None:
    with pytest.raises(ValueError, match="at least as many samples"):
        best_at_k([1.0] * n, k)
