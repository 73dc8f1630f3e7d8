"""Muon on the CPU: torch's own formula, in float32."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from kerneldojo.training.muon import HostMuon, orthogonal
from kerneldojo.training.optimizing import OptimizerConfig, Optimizers

COEFFICIENTS = (3.4445, -4.7750, 2.0315)


@pytest.mark.parametrize("shape", [(24, 24), (64, 16), (16, 64)], ids=["square", "tall", "wide"])
def test_singular_values_come_near_to_one_and_directions_stay(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape)
    found = orthogonal(matrix, COEFFICIENTS, 5, 1e-7)
    values = torch.linalg.svdvals(found)
    assert found.shape == shape and found.dtype == torch.float32
    assert float(values.min()) > 0.6 and float(values.max()) < 1.25
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    turned = left.T @ found @ right.T
    assert torch.allclose(turned, torch.diag(turned.diagonal()), atol=1e-4), "the singular vectors are the matrix's own"


def test_no_gradient_at_all_changes_nothing() -> None:
    assert not orthogonal(torch.zeros(4, 6), COEFFICIENTS, 5, 1e-7).any()


def test_it_steps_as_torchs_own_does_but_for_rounding() -> None:
    torch.manual_seed(0)
    start = [torch.randn(48, 20), torch.randn(20, 48), torch.randn(32, 32)]
    settings = {"lr": 0.01, "momentum": 0.95, "weight_decay": 0.1, "adjust_lr_fn": "match_rms_adamw"}
    mine, theirs = ([nn.Parameter(one.clone()) for one in start] for _ in range(2))
    ours, torchs = HostMuon(mine, **settings), torch.optim.Muon(theirs, **settings)
    for step in range(6):
        for one, other in zip(mine, theirs, strict=True):
            one.grad = torch.randn(one.shape, generator=torch.Generator().manual_seed(step))
            other.grad = one.grad.clone()
        ours.step()
        torchs.step()
    for one, other, before in zip(mine, theirs, start, strict=True):
        moved, apart = float((other.detach() - before).norm()), float((one.detach() - other.detach()).norm())
        assert 0 < apart < 0.02 * moved, "bfloat16 has eight bits"
        averages = ours.state[one]["momentum_buffer"], torchs.state[other]["momentum_buffer"]
        assert torch.equal(*averages)


def test_a_checkpoint_of_either_fits_the_other() -> None:
    settings = {"lr": 0.01, "adjust_lr_fn": "match_rms_adamw"}
    mine, theirs = nn.Parameter(torch.ones(4, 4)), nn.Parameter(torch.ones(4, 4))
    ours, torchs = HostMuon([mine], **settings), torch.optim.Muon([theirs], **settings)
    mine.grad = theirs.grad = torch.eye(4)
    ours.step()
    torchs.step()
    one, other = ours.state_dict(), torchs.state_dict()
    assert one["param_groups"] == other["param_groups"]
    assert {key: set(value) for key, value in one["state"].items()} == {0: {"momentum_buffer"}}
    torchs.load_state_dict(one)
    ours.load_state_dict(other)


def test_its_update_has_adamws_usual_size() -> None:
    matrix = nn.Parameter(torch.zeros(64, 32))
    optimizer = HostMuon([matrix], lr=1.0, adjust_lr_fn="match_rms_adamw", weight_decay=0.0)
    matrix.grad = torch.randn(64, 32, generator=torch.Generator().manual_seed(0))
    optimizer.step()
    assert 0.1 < float(matrix.detach().pow(2).mean().sqrt()) < 0.3, "about 0.2 for each element (arXiv 2502.16982)"
    assert math.isfinite(float(matrix.detach().sum()))


def test_it_is_what_matrices_on_the_cpu_get() -> None:
    model = nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 4))
    each = Optimizers(model, OptimizerConfig(matrices="muon")).each
    assert [type(one) for one in each] == [HostMuon, torch.optim.AdamW]
