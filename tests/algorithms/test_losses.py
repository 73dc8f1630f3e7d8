"""Clipped losses, estimates of the divergence and aggregations: by hand, and by finite differences."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from kerneldojo.algorithms import AggregationConfig, ClipConfig, clipped_policy_loss, kl_estimate, token_weights


def loss_at(ratio: float, advantage: float, config: ClipConfig) -> tuple[float, float]:
    """Loss and its derivative by the log-probability for one token."""
    log_prob = torch.tensor([math.log(ratio)], dtype=torch.float64, requires_grad=True)
    zero = torch.zeros(1, dtype=torch.float64)
    loss = clipped_policy_loss(log_prob, zero, torch.full_like(zero, advantage), config).loss
    return loss.item(), torch.autograd.grad(loss.sum(), log_prob)[0].item()


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (1.0, 2.0, -2.0, -2.0),  # on policy: the gradient of REINFORCE
        (1.27, 1.0, -1.27, -1.27),  # clip-higher: still room
        (1.29, 1.0, -1.28, 0.0),
        (0.5, 1.0, -0.5, -0.5),  # a good token that became rarer is pulled back in full
        (0.81, -1.0, 0.81, 0.81),
        (0.79, -1.0, 0.80, 0.0),
        (2.9, -1.0, 2.9, 2.9),
        (3.1, -1.0, 3.0, 0.0),  # dual clip
    ],
)
def test_clip_by_hand(ratio: float, advantage: float, loss: float, slope: float):
    value, derivative = loss_at(ratio, advantage, ClipConfig())
    assert value == pytest.approx(loss)
    assert derivative == pytest.approx(slope)


def test_without_dual_clip_a_bad_token_that_became_common_weighs_without_limit():
    assert loss_at(50.0, -1.0, ClipConfig(dual=None)) == (pytest.approx(50.0), pytest.approx(50.0))


def test_a_ratio_beyond_float_range_stays_finite():
    for log_ratio in (-1e4, 1e4):
        result = clipped_policy_loss(torch.tensor([log_ratio]), torch.zeros(1), -torch.ones(1), ClipConfig(dual=None))
        assert result.loss.isfinite().all()


@pytest.mark.parametrize("config", [ClipConfig(), ClipConfig(dual=None), ClipConfig(low=0.1, high=0.1)], ids=str)
def test_gradient_of_the_loss_by_finite_differences(config: ClipConfig):
    generator = torch.Generator().manual_seed(3)
    log_probs = torch.randn(64, generator=generator, dtype=torch.float64).requires_grad_()
    old = log_probs.detach() + 0.5 * torch.randn(64, generator=generator, dtype=torch.float64)
    advantages = torch.randn(64, generator=generator, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: clipped_policy_loss(x, old, advantages, config).loss, log_probs)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_gradient_of_the_divergence_by_finite_differences(kind: Any):
    log_probs = torch.randn(16, generator=torch.Generator().manual_seed(4), dtype=torch.float64).requires_grad_()
    reference = torch.zeros(16, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: kl_estimate(x, reference, kind), log_probs)


def test_estimates_of_the_divergence_by_exact_expectation():
    """k1 and k3 are unbiased; k2's gradient is that of the divergence, k3's is not."""
    theta = torch.tensor([0.5, -0.3, 0.1], dtype=torch.float64, requires_grad=True)
    log_p, log_q = theta.log_softmax(0), torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64).log()
    truth = (log_p.exp() * (log_p - log_q)).sum()
    p = log_p.exp().detach()
    for kind in ("k1", "k3"):
        assert (p * kl_estimate(log_p, log_q, kind)).sum().item() == pytest.approx(truth.item())
    gradient = torch.autograd.grad(truth, theta, retain_graph=True)[0]
    by_kind = {
        kind: torch.autograd.grad((p * kl_estimate(log_p, log_q, kind)).sum(), theta, retain_graph=True)[0]
        for kind in ("k2", "k3")
    }
    torch.testing.assert_close(by_kind["k2"], gradient)
    assert float((by_kind["k3"] - gradient).norm()) > 0.01
    assert (kl_estimate(log_p, log_q, "k3") >= 0).all()


SAMPLE = torch.tensor([0, 0, 0, 0, 1, 2, 2])  # answers of 4, 1 and 2 tokens
ALL = torch.ones(3, dtype=torch.bool)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"mode": "seq-mean-token-sum", "scale": 10}, [1 / 30] * 7),
        ({"mode": "constant-length", "max_length": 8}, [1 / 24] * 7),
        ({"mode": "token-mean"}, [1 / 7] * 7),
        ({"mode": "seq-mean-token-mean"}, [1 / 12] * 4 + [1 / 3] + [1 / 6] * 2),
    ],
)
def test_weights_by_hand_and_rejection_makes_no_other_heavier(settings: dict[str, Any], expected: list[float]):
    config = AggregationConfig.model_validate(settings)
    torch.testing.assert_close(token_weights(SAMPLE, ALL, ALL, config), torch.tensor(expected))
    kept = torch.tensor([True, False, True])
    rejected = torch.where(kept[SAMPLE], torch.tensor(expected), 0.0)
    torch.testing.assert_close(token_weights(SAMPLE, ALL, kept, config), rejected)


@pytest.mark.parametrize("mode", ["seq-mean-token-sum", "token-mean", "seq-mean-token-mean"])
def test_masked_samples_are_not_in_the_denominator(mode: Any):
    counted = torch.tensor([True, False, True])
    config = AggregationConfig(mode=mode)
    smaller = token_weights(torch.tensor([0, 0, 0, 0, 1, 1]), ALL[:2], ALL[:2], config)
    weights = token_weights(SAMPLE, counted, ALL, config)
    assert weights[SAMPLE != 1].tolist() == smaller.tolist()
    assert not weights[SAMPLE == 1].any()
    assert not token_weights(SAMPLE, ~ALL, ~ALL, config).any()


def test_constant_length_needs_a_length():
    with pytest.raises(ValidationError, match="max_length"):
        AggregationConfig(mode="constant-length")
    with pytest.raises(ValidationError, match="max_length"):
        AggregationConfig(max_length=5)
