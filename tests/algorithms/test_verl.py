"""Equality with verl 0.9.1, by figures that the real wheel computed (`peers/verl_golden.py`).

verl's `rloo` with the group key (prompt, turn) and the return-to-go as reward *is* TRLOO, but for one case: verl gives
a group's only member A = G, where our default is 0.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from kerneldojo.algorithms import (
    AggregationConfig,
    ClipConfig,
    Groups,
    GRPOConfig,
    MRSConfig,
    TRLOOConfig,
    Turns,
    advantages,
    clipped_policy_loss,
    kl_estimate,
    mismatch_rejection,
    token_weights,
)

GOLDEN = json.loads((Path(__file__).parent / "peers" / "verl-0.9.1.json").read_text())
INPUTS, OUTPUTS = GOLDEN["inputs"], GOLDEN["outputs"]


def tensor(name: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(INPUTS[name], dtype=dtype)


def turns() -> Turns:
    return Turns.of(INPUTS["prompt"], INPUTS["trajectory"], INPUTS["turn"])


def sample() -> torch.Tensor:
    lengths = tensor("lengths", torch.int64)
    return torch.arange(len(lengths)).repeat_interleave(lengths)


def close(ours: torch.Tensor, theirs: list[float], tolerance: float = 2e-6) -> None:
    torch.testing.assert_close(ours.float(), torch.tensor(theirs), rtol=tolerance, atol=tolerance)


def test_the_figures_are_of_the_version_that_is_named():
    assert GOLDEN["versions"]["verl"] == "0.9.1"


def test_trloo_is_verls_rloo_by_prompt_and_turn():
    close(advantages(tensor("returns"), turns(), TRLOOConfig(alone="return")), OUTPUTS["rloo"])


def test_groups_of_one_are_where_our_default_differs():
    ours = advantages(tensor("returns"), turns(), TRLOOConfig())
    alone = Groups.by(turns().prompt, turns().turn, members=turns().valid).size() == 1
    assert 0 < int(alone.sum()) < len(alone)
    theirs = torch.tensor(OUTPUTS["rloo"])
    close(ours[~alone], theirs[~alone].tolist())
    assert not ours[alone].any()
    assert theirs[alone].tolist() == tensor("returns")[alone].tolist()


@pytest.mark.parametrize(("name", "std"), [("grpo", False), ("grpo_std", True)])
def test_grpo_is_verls_grpo_by_prompt_and_turn(name: str, std: bool):
    ours = advantages(tensor("returns"), turns(), GRPOConfig(std=std, alone="return"))
    close(ours, OUTPUTS[name], tolerance=1e-5)  # verl divides a lone member by 1 + 1e-6


@pytest.mark.parametrize("mode", ["seq-mean-token-sum", "token-mean", "seq-mean-token-mean"])
def test_clipped_loss_and_its_gradient(mode: str):
    log_probs = tensor("log_probs").requires_grad_()
    losses = clipped_policy_loss(log_probs, tensor("old_log_probs"), tensor("token_advantages"), ClipConfig())
    assert losses.clipped.any()
    assert losses.dual_clipped.any()
    kept = tensor("kept", torch.bool)
    config = AggregationConfig(mode=mode)  # pyright: ignore[reportArgumentType]
    loss = (losses.loss * token_weights(sample(), torch.ones_like(kept), kept, config)).sum()
    loss.backward()
    close(loss.detach(), OUTPUTS["loss"][mode])
    assert log_probs.grad is not None
    close(log_probs.grad, OUTPUTS["gradient"][mode], tolerance=1e-7)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_kl_estimates(kind: str):
    ours = kl_estimate(tensor("log_probs"), tensor("old_log_probs"), kind)  # pyright: ignore[reportArgumentType]
    close(ours, OUTPUTS[kind])


def test_mismatch_rejection_is_verls_geometric_rejection_with_veto():
    train, rollout = tensor("old_log_probs", torch.float64), tensor("rollout_log_probs", torch.float64)
    counted = torch.ones(len(turns()), dtype=torch.bool)
    config = MRSConfig(level="turn", warn_below=0)
    result = mismatch_rejection(train, rollout, sample(), turns().trajectory, counted, config)
    assert result.keep.tolist() == OUTPUTS["mrs_keep"]
    assert int(result.vetoed.sum()) == 1
