"""Whether a trivial answer passes for the truth is told part by part as it would be as a whole."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kerneldojo.problems import pieces, trivial
from kerneldojo.problems.budget import make_budget
from kerneldojo.problems.tolerance import compare

NEARLY = 0.01


def truth_of(values: torch.Tensor) -> trivial.Truth:
    return trivial.Truth(values, make_budget(values, values.clone(), None))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 1000),
    off_by=st.sampled_from([0.0, 1e-7, 5e-3, 9e-3, 1.1e-2, 0.3]),
    where=st.sampled_from(["everywhere", "at the end"]),
    odd=st.sampled_from(["", "the same infinity", "another infinity"]),
)
def test_what_comes_near_is_told_by_all_parts(seed: int, off_by: float, where: str, odd: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(6, 17, generator=generator)
    noise = torch.randn(6, 17, generator=generator)
    if where == "at the end":
        noise[:-1] = 0.0
    noise *= values.norm() / noise.norm()
    answer = values + off_by * noise
    if odd:
        values[-1, 0] = torch.inf
        answer[-1, 0] = torch.inf if odd == "the same infinity" else 0.0
    finite = values.isfinite()
    distance = (answer - values)[finite].double().norm() / values[finite].double().norm()
    truth = truth_of(values)
    expected = compare(values, answer, truth.budget).passed or (odd != "another infinity" and float(distance) <= NEARLY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trivial, "pieces", partial(pieces.pieces, size=7))
        assert truth_of(values).accepts(answer, NEARLY) == expected
    assert truth.accepts(answer, NEARLY) == expected


def test_of_an_answer_that_is_far_off_no_more_is_looked_at_than_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    def counted(*tensors: torch.Tensor) -> object:
        for some in pieces.pieces(*tensors, size=7):
            looked.append(len(tensors))
            yield some

    monkeypatch.setattr(trivial, "pieces", counted)
    truth = truth_of(torch.ones(10, 14))
    assert not truth.accepts(torch.zeros(10, 14))
    assert looked.count(2) == 1
    assert not truth.accepts(torch.full((10, 14), 3.0))
    assert (looked.count(1), looked.count(2)) == (20, 2), "its size is asked once for all answers"
    assert truth.accepts(torch.ones(10, 14) * 1.000001)
