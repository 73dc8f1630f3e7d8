"""Where several are judged at once, a kernel that does not compile is told before anything of a GPU is taken."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from test_odd_problems import problem

from kerneldojo import Candidate
from kerneldojo.judging import Judge
from kerneldojo.schema import Status

pytestmark = pytest.mark.gpu

SOURCE = """
import torch, triton, triton.language as tl
from torch import nn

@triton.jit
def squash(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n)
    tl.store(y_ptr + at, VALUE, at < n)

class ModelNew(nn.Module):
    def forward(self, x):
        assert x.device.type == "cuda"
        y = torch.empty_like(x)
        squash[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""
PROBLEM = problem("return torch.tanh(x)")


@pytest.fixture(scope="module")
def judge() -> Generator[Judge]:
    with Judge(num_verdicts=2) as judge:
        yield judge


def test_what_does_not_compile_costs_no_context(judge: Judge) -> None:
    found = judge.judge(PROBLEM, Candidate(source=SOURCE.replace("VALUE", "tl.tanh(x)")), device="cuda:0")
    assert found.status is Status.COMPILE_ERROR, found.message
    assert "has no attribute 'tanh'" in found.message
    assert "line 15: squash[" in found.message
    assert not {"contexts", "correctness", "audit"} & found.stage_seconds.keys()


def test_what_does_is_judged(judge: Judge) -> None:
    found = judge.judge(
        PROBLEM, Candidate(source=SOURCE.replace("VALUE", "2 * tl.sigmoid(2 * x) - 1")), device="cuda:0"
    )
    assert found.status is Status.PASSED, found.message
    assert {"build", "contexts", "correctness"} <= found.stage_seconds.keys()


def test_where_one_is_judged_at_a_time_the_device_tells() -> None:
    with Judge() as judge:
        found = judge.judge(PROBLEM, Candidate(source=SOURCE.replace("VALUE", "tl.tanh(x)")), device="cuda:0")
    assert found.status is Status.COMPILE_ERROR, found.message
    assert "has no attribute 'tanh'" in found.message
