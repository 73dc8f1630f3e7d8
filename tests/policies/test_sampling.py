"""From logits to tokens: distributions, truncation, and draws."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kerneldojo.policies.sampling import log_distribution, next_tokens, uniforms


def rows(count, size, seed):
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed)) * 3


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([0.3, 1.0, 1.7]), st.floats(0.05, 1.0), st.integers(0, 12))
def test_truncated_distributions_are_normalised_and_proportional(seed, temperature, top_p, top_k):
    logits = rows(3, 11, seed)
    full = log_distribution(logits, torch.full((3,), temperature))
    cut = log_distribution(logits, torch.full((3,), temperature), torch.full((3,), top_p), top_k)
    torch.testing.assert_close(cut.exp().sum(-1), torch.ones(3))
    torch.testing.assert_close(full, torch.log_softmax(logits / temperature, -1))
    for whole, kept in zip(full, cut, strict=True):
        alive = kept > -torch.inf
        shift = (kept - whole)[alive]
        torch.testing.assert_close(shift, shift[:1].expand_as(shift), atol=1e-4, rtol=0)
        assert 1 <= alive.sum() <= (top_k or 11)
        # What stays is the likeliest, and no more than needed.
        order = whole.argsort(descending=True)
        count = int(alive.sum())
        assert set(order[:count].tolist()) == set(torch.nonzero(alive).flatten().tolist())
        candidates = torch.softmax(whole[order[: top_k or 11]], -1)
        assert candidates[: count - 1].sum() < top_p + 1e-5
        assert candidates[:count].sum() >= top_p - 1e-5


def test_draws_follow_the_distribution():
    logits = rows(1, 8, 3).expand(40_000, 8)
    log_probs = log_distribution(logits, torch.ones(40_000))
    draws = torch.from_numpy(uniforms(11, 40_000))
    found = torch.bincount(next_tokens(log_probs, draws), minlength=8) / 40_000
    spread = (log_probs[0].exp() * (1 - log_probs[0].exp()) / 40_000).sqrt()
    assert ((found - log_probs[0].exp()).abs() < 5 * spread + 1e-9).all()


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([0.0, 0.5, float(np.nextafter(1, 0)), 1e-300]), st.floats(0.05, 0.9))
def test_no_token_of_probability_zero_is_drawn(seed, draw, top_p):
    log_probs = log_distribution(rows(4, 50, seed), torch.ones(4), torch.full((4,), top_p))
    log_probs[0] = -torch.inf
    log_probs[0, seed % 50] = 0.0
    tokens = next_tokens(log_probs, torch.full((4,), draw, dtype=torch.float64))
    assert (log_probs.gather(-1, tokens[:, None]) > -torch.inf).all()
    assert tokens[0] == seed % 50


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([5, 127, 128, 129, 1000]), st.sampled_from([0.1, 3.0, 20.0]))
def test_blocks_find_the_token_that_a_sum_over_the_whole_vocabulary_finds(seed, size, spread):
    log_probs = torch.log_softmax(rows(9, size, seed) * spread / 3, -1)
    log_probs[:4, : size // 2] = -torch.inf
    draws = torch.rand(9, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    draws[0], draws[1], draws[2] = 0.0, float(np.nextafter(1, 0)), 1e-300
    cumulated = log_probs.double().exp().cumsum(-1)
    target = torch.minimum(draws[:, None], torch.ones(1).double() - 1e-12) * cumulated[:, -1:]
    expected = torch.searchsorted(cumulated, target, right=True).squeeze(-1)
    tokens = next_tokens(log_probs, draws)
    # The two may differ only where a draw lies on the border of two tokens, within float64's rounding.
    between = cumulated.gather(1, torch.minimum(tokens, expected)[:, None])
    assert ((tokens == expected) | ((between - target).abs().squeeze(-1) < 1e-12)).all()
    assert (log_probs.gather(-1, tokens[:, None]) > -torch.inf).all()


def test_what_is_not_a_number_stays_within_the_vocabulary():
    tokens = next_tokens(torch.full((3, 200), torch.nan), torch.tensor([0.0, 0.5, 0.9], dtype=torch.float64))
    assert ((tokens >= 0) & (tokens < 200)).all()


@given(st.integers(-(1 << 63), 1 << 63), st.integers(1, 50), st.integers(1, 50))
def test_streams_depend_on_the_seed_alone(seed, short, more):
    stream = uniforms(seed, short + more)
    assert np.array_equal(uniforms(seed, short), stream[:short])
    assert ((stream >= 0) & (stream < 1)).all()
    assert not np.array_equal(uniforms(seed + 1, 4), uniforms(seed, 4))
