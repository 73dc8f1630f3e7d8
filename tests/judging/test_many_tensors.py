"""Problems that take or return many tensors: an optimizer's step has as many as a model has weights."""

from __future__ import annotations

import pytest

from kerneldojo import Candidate, Problem
from kerneldojo.contestant import tree
from kerneldojo.judging import Judge
from kerneldojo.schema import Evaluation, Status

SCALED = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.count = count

    def forward(self, x):
        return [x * (1 + number / self.count) for number in range(self.count)]

def get_inputs():
    return [torch.randn(16, 32)]

def get_init_inputs():
    return [{count}]
"""
CANDIDATE = """
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def scale(x_ptr, y_ptr, count, n, BLOCK: tl.constexpr):
    number = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n)
    tl.store(y_ptr + number * n + at, x * (1 + number / count), at < n)

class ModelNew(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.count = count

    def forward(self, x):
        y = torch.empty((self.count, *x.shape), dtype=x.dtype, device=x.device)
        scale[(self.count,)](x, y, self.count, x.numel(), BLOCK=512)
        return list(y)
"""
WRONG = CANDIDATE.replace("return list(y)", "y[-1].mul_(0)\n        return list(y)")

TOGETHER = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, parts):
        return torch.stack(parts).sum(dim=0)

def get_inputs():
    return [[torch.randn(16, 32) for _ in range(300)]]

def get_init_inputs():
    return []
"""
SUM = """
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def add_up(x_ptr, y_ptr, count, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for number in range(count):
        total += tl.load(x_ptr + number * n + at, at < n)
    tl.store(y_ptr + at, total, at < n)

class ModelNew(nn.Module):
    def forward(self, parts):
        x = torch.stack(parts)
        y = torch.empty_like(parts[0])
        add_up[(triton.cdiv(y.numel(), 128),)](x, y, len(parts), y.numel(), BLOCK=128)
        return y
"""
FORGETFUL = SUM.replace("len(parts), y", "len(parts) - 1, y")
"""Leaves the last of 300 out."""


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    return request.param


def verdict(judge: Judge, device: str, count: int, source: str = CANDIDATE) -> Evaluation:
    problem = Problem(name="scaled", source=SCALED.format(count=count))
    return judge.judge(problem, Candidate(source=source), device=device)


def verdict_together(judge: Judge, device: str, source: str) -> Evaluation:
    problem = Problem(name="together", source=TOGETHER)
    return judge.judge(problem, Candidate(source=source), device=device)


@pytest.mark.parametrize("count", [40, 300])
def test_an_honest_candidate_passes(judge: Judge, device: str, count: int) -> None:
    found = verdict(judge, device, count)
    assert found.status is Status.PASSED, found.message


def test_one_of_them_that_is_wrong_is_seen(judge: Judge, device: str) -> None:
    found = verdict(judge, device, 40, WRONG)
    assert found.status is Status.INCORRECT, found.message


def test_of_more_than_can_be_told_of_the_problem_is_refused(judge: Judge, device: str) -> None:
    found = verdict(judge, device, tree.MAX_LEAVES)
    assert found.status is Status.INVALID_PROBLEM
    assert f"more than {tree.MAX_LEAVES} values" in found.message
    assert "\n" not in found.message


def test_one_of_many_inputs_that_is_left_out_is_missed(judge: Judge, device: str) -> None:
    found = verdict_together(judge, device, SUM)
    assert found.status is Status.PASSED, found.message
    found = verdict_together(judge, device, FORGETFUL)
    assert found.status is Status.INCORRECT, found.message
