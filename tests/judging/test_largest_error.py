"""A wrong answer's verdict says how wrong it is, in figures too."""

from __future__ import annotations

from kerneldojo import Candidate, Problem, judge
from kerneldojo.schema import Status

REFERENCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x * 2

def get_inputs():
    return [torch.randn(4, 64)]

def get_init_inputs():
    return []
"""

ANSWER = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * FACTOR, mask=mask)

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(1,)](x, y, x.numel(), BLOCK=256)
        return y
"""


def test_the_error_that_decided_is_in_the_verdict() -> None:
    problem = Problem(name="twice", source=REFERENCE)
    for factor, status in (("2.0", Status.PASSED), ("2.5", Status.INCORRECT)):
        source = ANSWER.replace("FACTOR", factor)
        verdict = judge(problem, Candidate(source=source), device="cpu", protocol="quick")
        assert verdict.status is status, verdict.message
        assert verdict.max_error is not None
        assert (verdict.max_error < 1) == verdict.correct
