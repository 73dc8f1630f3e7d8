"""A candidate may use what the reference's source defines, as where KernelBench evaluates it."""

from __future__ import annotations

import pytest

from kerneldojo import Candidate, Problem
from kerneldojo.judging import Judge
from kerneldojo.schema import Evaluation, Status

PROBLEM = Problem(
    name="borrowed",
    source="""
import math
import torch
import torch.nn as nn

factor = 3.0

class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(64))

    def forward(self, x):
        return x * self.w

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = Scale()

    def forward(self, x):
        return self.scale(x) * factor + math.sqrt(2.0)

def get_inputs():
    return [torch.randn(32, 64)]

def get_init_inputs():
    return []
""",
)
SOURCE = """
import torch
import triton
import triton.language as tl

@triton.jit
def affine(x_ptr, y_ptr, w_ptr, n, factor, shift, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x, w = tl.load(x_ptr + row * n + at, at < n), tl.load(w_ptr + at, at < n)
    tl.store(y_ptr + row * n + at, x * w * factor + shift, at < n)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = Scale()

    def forward(self, x):
        y = torch.empty_like(x)
        affine[(x.shape[0],)](x, y, self.scale.w, x.shape[1], factor, math.sqrt(2.0), BLOCK=64)
        return y
"""
DEVICES = ["cpu", "model:h200", pytest.param("cuda:0", marks=pytest.mark.gpu)]


def verdict(judge: Judge, device: str, source: str) -> Evaluation:
    return judge.judge(PROBLEM, Candidate(source=source), device=device)


@pytest.mark.parametrize("device", DEVICES)
def test_it_passes_and_says_what_it_has_of_the_reference(judge: Judge, device: str) -> None:
    found = verdict(judge, device, SOURCE)
    assert found.status is Status.PASSED, found.message
    assert [note for note in found.notes if note.endswith("lets it: Scale, factor, math, nn")]


@pytest.mark.parametrize("device", DEVICES)
def test_who_has_all_of_it_has_no_kernel_of_its_own(judge: Judge, device: str) -> None:
    found = verdict(judge, device, "class ModelNew(Model):\n    pass\n")
    assert found.status is Status.EXPLOIT, found.message
    assert [one.name for one in found.exploits] == ["no_own_kernel"]


@pytest.mark.parametrize("device", DEVICES)
def test_what_nobody_defines_is_still_missing(judge: Judge, device: str) -> None:
    found = verdict(judge, device, SOURCE.replace("self.scale = Scale()", "self.scale = Scales()"))
    assert found.status is Status.RUNTIME_ERROR
    assert "NameError: name 'Scales' is not defined" in found.message


def test_who_needs_nothing_is_told_nothing(judge: Judge) -> None:
    whole = "import math\nfrom torch import nn\nfactor = 3.0\n" + SOURCE.replace("Scale()", "nn.Identity()")
    whole = whole.replace("self.scale = nn.Identity()", "self.scale = nn.Linear(64, 1)").replace(
        "self.scale.w,", "self.scale.weight.view(-1),"
    )
    found = verdict(judge, "cpu", whole)
    assert not [note for note in found.notes if "reference's source" in note]
