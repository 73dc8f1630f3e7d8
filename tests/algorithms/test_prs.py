"""Profiling-based rejection: the paper's probabilities, and what the two readings of the paper do to failures."""

from __future__ import annotations

import pytest
import torch

from kerneldojo.algorithms import PRSConfig, profiling_rejection


def test_probability_rises_from_the_threshold_over_the_softness():
    coverage = torch.tensor([0.00014, 0.3, 0.35, 0.4, 0.8615])  # the paper's lazy and fused answers at the ends
    correct = torch.ones(5, dtype=torch.bool)
    result = profiling_rejection(coverage, correct, torch.full((5,), 0.499), PRSConfig())
    torch.testing.assert_close(result.probability, torch.tensor([0.0, 0.0, 0.5, 1.0, 1.0]))
    assert result.keep.tolist() == [False, False, True, True, True]
    later = profiling_rejection(coverage, correct, torch.full((5,), 0.501), PRSConfig())
    assert later.keep.tolist() == [False, False, False, True, True]


def test_hard_rejection_is_a_threshold_whatever_is_drawn():
    coverage = torch.tensor([0.299, 0.3, 0.301])
    for draw in (0.0, 0.9999):
        result = profiling_rejection(coverage, torch.ones(3).bool(), torch.full((3,), draw), PRSConfig(softness=0))
        assert result.keep.tolist() == [False, True, True]


def test_failures_are_kept_unless_the_paper_is_taken_to_the_letter():
    coverage = torch.tensor([float("nan"), 0.0, 0.9])
    correct = torch.tensor([False, False, True])
    draws = torch.full((3,), 0.5)
    assert profiling_rejection(coverage, correct, draws, PRSConfig()).keep.tolist() == [True, True, True]
    literal = profiling_rejection(coverage, correct, draws, PRSConfig(applies_to="all"))
    assert literal.keep.tolist() == [False, False, True]


def test_an_unreadable_profile_is_no_way_past_the_rule():
    result = profiling_rejection(torch.tensor([float("nan")]), torch.tensor([True]), torch.zeros(1), PRSConfig())
    assert result.keep.tolist() == [False]


def test_as_many_are_kept_as_the_probability_says():
    draws = torch.rand(20000, generator=torch.Generator().manual_seed(0))
    coverage = torch.full((20000,), 0.32)
    result = profiling_rejection(coverage, torch.ones(20000).bool(), draws, PRSConfig())
    assert float(result.keep.double().mean()) == pytest.approx(0.2, abs=0.01)
