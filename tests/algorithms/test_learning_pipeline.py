"""The order of operations: who is in a baseline, who is in a denominator, who is learned from."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from kerneldojo.algorithms import (
    DR_KERNEL,
    KEVIN,
    TRITONRL,
    AggregationConfig,
    HRDConfig,
    KLConfig,
    LearningConfig,
    Samples,
    Turns,
    log_probs_from_hidden,
    policy_loss,
    prepare,
)

PLAIN = LearningConfig(prs=None, mrs=None, aggregation=AggregationConfig(scale=1))


def batch(**changes: object) -> Samples:
    """Two prompts, three trajectories each, one or two turns; answers of two tokens. Everything accepted by default."""
    turns = Turns.of([0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 2, 3, 4, 4, 5], [0, 1, 0, 0, 0, 0, 1, 0])
    n = len(turns)
    log_probs = -torch.linspace(0.1, 2.0, 2 * n)
    samples = Samples(
        turns=turns,
        rewards=torch.tensor([1.0, 3.0, 0.0, 2.0, 0.0, 2.0, 2.5, 4.0]),
        sample=torch.arange(n).repeat_interleave(2),
        log_probs=log_probs,
        rollout_log_probs=log_probs.clone(),
        correct=torch.tensor([True, True, False, True, False, True, True, True]),
        coverage=torch.full((n,), 0.9),
        draws=torch.full((n,), 0.5),
        is_plan=torch.tensor([True, False] * n),
    )
    return replace(samples, **changes)  # pyright: ignore[reportArgumentType]


def per_sample(tokens: Tensor) -> list[float]:
    return tokens[::2].tolist()


def test_advantages_of_the_return_to_go_by_prompt_and_turn():
    prepared = prepare(batch(), DR_KERNEL)
    assert prepared.returns.tolist() == [4.0, 3.0, 0.0, 2.0, 0.0, 4.5, 2.5, 4.0]
    assert per_sample(prepared.advantages) == [3.0, 0.0, -3.0, 0.0, -4.25, 2.5, 0.0, 1.75]
    assert prepared.report.num_alone == 2
    assert prepared.report.num_kept == 8
    assert prepared.report.num_informative == 5
    assert prepared.skip_reason is None


def test_rejected_samples_stay_in_baselines_and_in_the_denominator():
    everything = prepare(batch(), DR_KERNEL)
    coverage = torch.full((8,), 0.9)
    coverage[5] = 0.01  # right but lazy: PRS
    rollout = batch().log_probs.clone()
    rollout[14:] += 1  # engine and trainer disagree: MRS
    with pytest.warns(UserWarning, match="MRS accepted"):
        mrs = DR_KERNEL.mrs.model_copy(update={"warn_below": 0.9}) if DR_KERNEL.mrs else None
        config = DR_KERNEL.model_copy(update={"mrs": mrs})
        rejected = prepare(batch(coverage=coverage, rollout_log_probs=rollout), config)
    assert rejected.kept.tolist() == [True] * 5 + [False, True, False]
    assert rejected.advantages.tolist() == everything.advantages.tolist()
    assert rejected.returns.tolist() == everything.returns.tolist()
    assert per_sample(rejected.weights) == [
        w * k for w, k in zip(per_sample(everything.weights), rejected.kept, strict=True)
    ]
    assert rejected.report.prs_acceptance == rejected.report.mrs_acceptance == 7 / 8
    assert rejected.report.num_counted == 8


def test_a_fault_drops_its_trajectory_from_groups_and_denominator():
    rewards = batch().rewards.clone()
    rewards[1] = float("nan")
    turns = batch().turns.with_valid(~rewards.isnan())
    prepared = prepare(batch(turns=turns, rewards=rewards), PLAIN)
    assert per_sample(prepared.advantages)[:4] == [0.0, 0.0, -2.0, 2.0]
    assert per_sample(prepared.weights)[:3] == [0.0, 0.0, pytest.approx(1 / 6)]
    assert prepared.report.num_faulty == 2
    loss = policy_loss(prepared, batch().log_probs.requires_grad_()).loss
    assert loss.isfinite()


def test_steps_with_nothing_to_learn_from_say_so():
    turns = batch().turns
    faulty = prepare(batch(turns=turns.with_valid(torch.zeros(8, dtype=torch.bool))), PLAIN)
    assert faulty.skip_reason == "no sample with a known reward among 8"
    lazy = batch(coverage=torch.zeros(8), correct=torch.ones(8, dtype=torch.bool))
    rejected = prepare(lazy, DR_KERNEL)
    assert rejected.skip_reason == "all 8 samples were rejected"
    log_probs = batch().log_probs.requires_grad_()
    loss = policy_loss(rejected, log_probs).loss
    loss.backward()
    assert loss.item() == 0
    assert log_probs.grad is not None
    assert not log_probs.grad.any()


def test_rejected_tokens_may_be_infinite_without_spoiling_the_gradient():
    coverage = torch.full((8,), 0.9)
    coverage[0] = 0.0
    prepared = prepare(batch(coverage=coverage), DR_KERNEL)
    log_probs = batch().log_probs.clone()
    log_probs[0] = -float("inf")
    log_probs.requires_grad_()
    result = policy_loss(prepared, log_probs)
    result.loss.backward()
    assert log_probs.grad is not None
    assert result.loss.isfinite()
    assert log_probs.grad.isfinite().all()
    assert result.num_tokens == 14


def test_micro_batches_add_up_to_the_step():
    for aggregation in ("seq-mean-token-sum", "token-mean", "seq-mean-token-mean"):
        config = PLAIN.model_copy(update={"aggregation": AggregationConfig(mode=aggregation), "kl": KLConfig(weight=1)})
        prepared = prepare(batch(), config)
        log_probs = batch().log_probs + 0.3 * torch.randn(16, generator=torch.Generator().manual_seed(0))
        reference = torch.zeros(16)
        whole = policy_loss(prepared, log_probs, reference_log_probs=reference)
        parts = [
            policy_loss(prepared, log_probs[rows], rows, reference[rows])
            for rows in (torch.arange(0, 5), torch.arange(5, 6), torch.arange(6, 16))
        ]
        assert float(sum(part.loss for part in parts)) == pytest.approx(float(whole.loss), rel=1e-5)
        assert sum(part.num_tokens for part in parts) == whole.num_tokens == 16
        assert sum(part.num_clipped for part in parts) == whole.num_clipped > 0


def test_plan_and_code_have_a_return_each_with_the_same_discount():
    config = PLAIN.model_copy(update={"hrd": HRDConfig(alpha=0.1)})
    plan_rewards = torch.tensor([0.0, 2.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    tokens = prepare(batch(plan_rewards=plan_rewards), config).advantages.view(8, 2)
    torch.testing.assert_close(tokens[:4, 0], 0.1 * torch.tensor([1.5, 0.0, -1.5, 0.0]))
    assert tokens[:, 1].tolist() == per_sample(prepare(batch(), PLAIN).advantages)
    uniform = prepare(batch(), config).advantages.view(8, 2)
    torch.testing.assert_close(uniform[:, 0], 0.1 * uniform[:, 1])


def test_meaningless_turns_can_be_left_out_of_groups_and_denominator():
    rewards = torch.tensor([1.0, 0.0, 0.0, 2.0, 0.0, 2.0, 2.5, 4.0])
    prepared = prepare(batch(rewards=rewards), PLAIN.model_copy(update={"drop_meaningless_turns": True}))
    assert prepared.report.num_meaningless == 1
    assert prepared.report.num_counted == 7
    assert float(prepared.weights[2]) == 0
    assert float(prepared.weights[0]) == pytest.approx(1 / 7)


@pytest.mark.parametrize(
    ("changes", "config", "column"),
    [
        ({"rollout_log_probs": None}, DR_KERNEL, "rollout_log_probs is needed for mrs"),
        ({"draws": None}, DR_KERNEL, "draws is needed for prs"),
        ({"is_plan": None}, TRITONRL, "is_plan is needed for hrd"),
        ({"plan_rewards": torch.zeros(8)}, KEVIN, "hrd is off"),
    ],
)
def test_a_missing_column_is_named(changes: dict[str, object], config: LearningConfig, column: str):
    with pytest.raises(ValueError, match=column):
        prepare(batch(**changes), config)


@pytest.mark.parametrize("config", [DR_KERNEL, KEVIN, TRITONRL], ids=["dr_kernel", "kevin", "tritonrl"])
def test_gradient_of_the_whole_chain_by_finite_differences(config: LearningConfig):
    """From the hidden states of an output layer to the loss of a step, with each paper's settings."""
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(16, 3, generator=generator, dtype=torch.float64).requires_grad_()
    weight = torch.randn(6, 3, generator=generator, dtype=torch.float64).requires_grad_()
    targets = torch.randint(6, (16,), generator=generator)
    before = log_probs_from_hidden(hidden, weight, targets).log_probs.detach()
    off_policy = before + 0.05 * torch.randn(16, generator=generator, dtype=torch.float64)
    prepared = prepare(batch(log_probs=off_policy, rollout_log_probs=off_policy), config)
    # In units where the numbers are not tiny: the tolerance of the check is absolute.
    prepared = replace(prepared, weights=prepared.weights.double() / float(prepared.weights.max()))

    def loss(hidden: Tensor, weight: Tensor) -> Tensor:
        return policy_loss(prepared, log_probs_from_hidden(hidden, weight, targets, chunk_size=5).log_probs).loss

    assert loss(hidden, weight).abs() > 0.1
    assert torch.autograd.gradcheck(loss, (hidden, weight))


def test_one_step_on_policy_is_reinforce():
    prepared = prepare(batch(), PLAIN)
    log_probs = batch().log_probs.requires_grad_()
    policy_loss(prepared, log_probs).loss.backward()
    assert log_probs.grad is not None
    torch.testing.assert_close(log_probs.grad, -prepared.advantages * prepared.weights)


def test_papers_settings_are_the_papers():
    assert LearningConfig() == DR_KERNEL
    assert (DR_KERNEL.returns.discount, DR_KERNEL.clip.low, DR_KERNEL.clip.high, DR_KERNEL.clip.dual) == (
        1,
        0.2,
        0.28,
        3,
    )
    assert (KEVIN.returns.discount, KEVIN.advantage.type, KEVIN.mrs, KEVIN.prs) == (0.4, "kevin", None, None)
    assert TRITONRL.hrd == HRDConfig(alpha=0.1)
