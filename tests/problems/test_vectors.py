"""Many short tensors at once: as strict as one by one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kerneldojo.problems.budget import make_budget
from kerneldojo.problems.tolerance import compare
from kerneldojo.problems.vectors import Vector, are_all_well

LENGTH = 2048


def _vector(shape=(96,), dtype=torch.float32, error=0.0, seed=0) -> Vector:
    """A tensor whose native run is off by float32's roundings; `error` is what the answer is off by beside that."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randn(shape, generator=generator, dtype=torch.float64)
    native = (truth * (1 + 3e-7 * torch.randn(shape, generator=generator, dtype=torch.float64))).to(dtype)
    return Vector(truth, native, (native.double() + error * torch.randn(shape, generator=generator)).to(dtype))


def _passes(one: Vector) -> bool:
    return compare(one.truth, one.got, make_budget(one.truth, one.native, reduction_length=LENGTH)).passed


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([(), (1,), (5,), (63,), (64,), (200,), (3, 1, 1), (70, 2)]),
            st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
            st.sampled_from([0.0, 1e-7, 1e-6, 5e-6, 1e-5, 2e-5, 4e-5, 1e-4, 1e-2]),
        ),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 1000),
)
def test_all_are_well_if_each_passes_by_itself(kinds, seed) -> None:
    vectors = [_vector(shape, dtype, error, seed + place) for place, (shape, dtype, error) in enumerate(kinds)]
    assert are_all_well(vectors, LENGTH) is all(map(_passes, vectors))


def test_a_truth_in_single_precision_has_the_wider_floor_as_by_itself() -> None:
    one = _vector(error=5e-5)
    single = one._replace(truth=one.native)
    assert (are_all_well([one], LENGTH), are_all_well([single], LENGTH)) == (_passes(one), _passes(single))
    assert not are_all_well([single, _vector(error=1.0, seed=1)], LENGTH)


def test_one_wrong_element_among_many_is_seen() -> None:
    vectors = [_vector((32 * place,), seed=place) for place in range(1, 40)]
    assert are_all_well(vectors, LENGTH)
    vectors[17].got[3] += 1e-2
    assert not are_all_well(vectors, LENGTH)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["got", "native", "truth"])
def test_what_is_no_number_is_looked_at_by_itself(value, where) -> None:
    one = _vector()
    getattr(one, where)[5] = value
    assert not are_all_well([_vector(seed=1), one], LENGTH)


def test_other_kinds_are_looked_at_by_themselves() -> None:
    matrix, counts = _vector((4, 64)), torch.arange(9)
    assert _passes(matrix) and not are_all_well([matrix], LENGTH)
    assert not are_all_well([Vector(counts, counts, counts)], LENGTH)
    empty = torch.zeros(0)
    assert not are_all_well([Vector(empty.double(), empty, empty)], LENGTH)
    one = _vector()
    assert not are_all_well([one._replace(got=one.got.double())], LENGTH)
    assert not are_all_well([one._replace(got=one.got[:50])], LENGTH)


def test_none_are_well() -> None:
    assert are_all_well([], LENGTH)
