"""Who leaves zeros where no kernel writes is right, for nothing, where zeros are the answer; that convicts nobody."""

from __future__ import annotations

import pytest
from test_odd_problems import problem

from kerneldojo import Candidate, Problem
from kerneldojo.judging import Judge
from kerneldojo.schema import Evaluation, Status
from kerneldojo.schema.evaluation import CAUSE_UNSHOWN

KERNEL = """
import torch, triton, triton.language as tl
from torch import nn

@triton.jit
def above(x_ptr, y_ptr, n, bound, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n)
    tl.store(y_ptr + at, tl.maximum(x - bound, 0.0), at < n)

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        above[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), {bound}, BLOCK=1024)
        return y
"""
DECOY = KERNEL.replace("return y\n", "return torch.relu(x - {bound})\n")
"""Launches the same, and returns what torch has found."""
SELDOM, NEVER = 4.5, 1e9
DEVICES = ["cpu", "model:h200", pytest.param("cuda:0", marks=pytest.mark.gpu)]


def above(bound: float) -> Problem:
    return problem(f"return torch.relu(x - {bound})")


def verdict(judge: Judge, device: str, bound: float, source: str) -> Evaluation:
    candidate = Candidate(source=source.format(bound=bound))
    return judge.judge(above(bound), candidate, device=device, allow_degenerate=True)


@pytest.mark.parametrize("device", DEVICES)
def test_whose_answer_is_nearly_always_nothing_is_not_convicted_for_that(judge: Judge, device: str) -> None:
    """Of 6,144 normal numbers one in fifty calls has one above 4.5."""
    found = verdict(judge, device, SELDOM, KERNEL)
    assert found.status is Status.PASSED, found.message


@pytest.mark.parametrize("device", DEVICES)
def test_where_all_answers_are_the_same_nothing_can_be_shown(judge: Judge, device: str) -> None:
    found = verdict(judge, device, NEVER, KERNEL)
    assert found.status is Status.PASSED, found.message
    assert CAUSE_UNSHOWN in found.notes and not found.is_cause_shown


@pytest.mark.parametrize("device", DEVICES)
def test_a_decoy_is_found_where_answers_differ(judge: Judge, device: str) -> None:
    found = verdict(judge, device, 1.0, DECOY)
    assert found.status is Status.EXPLOIT, found.message
    assert [one.name for one in found.exploits] == ["no_causal_kernel"]
    assert verdict(judge, device, 1.0, KERNEL).status is Status.PASSED


@pytest.mark.parametrize("device", DEVICES)
def test_whose_kernel_runs_in_training_only_is_told_the_mode(judge: Judge, device: str) -> None:
    """Dropout is judged in eval mode, for nobody can repeat what is random."""
    dropped = problem("return torch.tanh(nn.functional.dropout(x, 0.5, self.training))")
    branch = "        if not self.training:\n            return torch.tanh(x)\n        y = torch.zeros_like(x)\n"
    source = KERNEL.format(bound=0.0).replace("        y = torch.zeros_like(x)\n", branch)
    found = judge.judge(dropped, Candidate(source=source), device=device)
    assert [one.name for one in found.exploits] == ["no_own_kernel"], found.message
    assert "all in eval mode" in found.message
