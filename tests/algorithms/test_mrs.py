"""Mismatch rejection with a sampler that was perturbed on purpose."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import Tensor

from kerneldojo.algorithms import MismatchWarning, MRSConfig, mismatch_rejection


def flat(lengths: list[int]) -> Tensor:
    return torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))


def reject(log_ratio: Tensor, lengths: list[int], trajectory: list[int] | None = None, **settings: object):
    rollout = -torch.ones_like(log_ratio)
    owner = torch.arange(len(lengths)) if trajectory is None else torch.tensor(trajectory)
    config = MRSConfig.model_validate({"warn_below": 0, **settings})
    counted = torch.ones(len(lengths), dtype=torch.bool)
    return mismatch_rejection(rollout + log_ratio, rollout, flat(lengths), owner, counted, config)


def test_bounds_are_on_the_geometric_mean_of_the_ratios():
    ratios = torch.tensor([0.9985, 1.0015, 1.0009, 0.9988, 0.9988, 1.0025, 1.0025], dtype=torch.float64)
    result = reject(ratios.log(), [2, 1, 2, 2], level="turn")
    assert result.keep.tolist() == [True, True, False, False]
    assert float(result.log_mean[1]) == pytest.approx(math.log(1.0009))


def test_veto_looks_at_single_tokens_and_only_downwards():
    log_ratio = torch.zeros(3, 10000, dtype=torch.float64)
    log_ratio[0, 5] = math.log(0.9e-4)
    log_ratio[1, 5] = math.log(1.1e-4)
    log_ratio[2, 5] = math.log(1e4)
    result = reject(log_ratio.flatten(), [10000] * 3, level="turn")
    assert result.vetoed.tolist() == [True, False, False]
    assert result.keep.tolist() == [False, True, True]
    assert reject(log_ratio.flatten(), [10000] * 3, veto=0).keep.tolist() == [True, True, True]


def test_levels_of_bound_and_veto():
    bad, fine = math.log(1.01), 0.0
    log_ratio = torch.tensor([bad, fine, fine, fine], dtype=torch.float64)
    assert reject(log_ratio, [1, 1, 1, 1], [0, 0, 1, 1]).keep.tolist() == [False, False, True, True]
    assert reject(log_ratio, [1, 1, 1, 1], [0, 0, 1, 1], level="turn").keep.tolist() == [False, True, True, True]
    # A long first turn hides the vetoed token of the second from the mean: only the veto sees it.
    log_ratio = torch.zeros(20002, dtype=torch.float64)
    log_ratio[20000] = math.log(1e-5)
    lengths, owners = [20000, 1, 1], [0, 0, 1]
    assert reject(log_ratio, lengths, owners).keep.tolist() == [False, False, True]
    assert reject(log_ratio, lengths, owners, veto_level="turn").keep.tolist() == [True, False, True]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_log_probs_that_are_not_numbers_reject_their_sequence_alone(value: float):
    assert reject(torch.tensor([0.0, value, 0.0]), [2, 1], level="turn").keep.tolist() == [False, True]


def test_short_answers_of_a_noisy_sampler_are_rejected_by_chance():
    """Noise s a token spreads the mean over L tokens by s / √L: acceptance is erf(0.001 / (s / √L) / √2)."""
    noise, num = 0.02, 600
    generator = torch.Generator().manual_seed(0)
    for length in (40, 400, 4000):
        log_ratio = noise * torch.randn(num * length, generator=generator)
        expected = math.erf(0.001 * math.sqrt(length) / noise / math.sqrt(2))
        plain = reject(log_ratio, [length] * num, level="turn")
        assert plain.acceptance == pytest.approx(expected, abs=0.06)
        assert float(plain.log_mean.std()) == pytest.approx(noise / math.sqrt(length), rel=0.1)
        # The bound that knows the length accepts short answers as readily as those it was meant for.
        aware = reject(log_ratio, [length] * num, level="turn", reference_length=4000)
        assert aware.acceptance == pytest.approx(math.erf(0.001 * math.sqrt(4000) / noise / math.sqrt(2)), abs=0.03)


def test_the_length_aware_bound_still_finds_a_sampler_at_another_temperature():
    """A drift is the same at every length, noise is not: long answers are judged as strictly as before."""
    log_ratio = 0.003 + 0.02 * torch.randn(200 * 4000, generator=torch.Generator().manual_seed(1))
    assert reject(log_ratio, [4000] * 200, reference_length=4000).acceptance == 0


def test_the_bound_never_gets_tighter_for_long_answers():
    log_ratio = torch.full((8000,), 0.0009)
    assert reject(log_ratio, [8000], reference_length=100).keep.tolist() == [True]


def test_low_acceptance_warns_and_says_what_to_look_at():
    log_ratio = torch.tensor([0.0, 0.01, 0.01, 0.01])
    with pytest.warns(MismatchWarning, match="accepted 25% of 4 samples"):
        reject(log_ratio, [1] * 4, warn_below=0.8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert reject(torch.zeros(4), [1] * 4, warn_below=0.8).acceptance == 1


def test_acceptance_is_a_share_of_those_that_count():
    lengths, log_ratio = [1, 1, 1], torch.tensor([0.0, 0.5, 0.5])
    counted = torch.tensor([True, True, False])
    config = MRSConfig(warn_below=0)
    result = mismatch_rejection(log_ratio, torch.zeros(3), flat(lengths), torch.arange(3), counted, config)
    assert result.acceptance == 0.5
