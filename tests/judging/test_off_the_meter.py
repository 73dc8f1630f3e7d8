"""On a modelled device, what is not counted is no gain: it is charged as all of the reference's work."""

from __future__ import annotations

from typing import Any

import pytest

from kerneldojo import Candidate, Evaluation, Problem, judge
from kerneldojo.devices import parse
from kerneldojo.judging import pricing
from kerneldojo.judging.protocol import protocol
from kerneldojo.judging.rounds import Rounds
from kerneldojo.judging.verdict import Findings

PROBLEM = Problem(
    name="swish",
    source="""
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)

def get_inputs():
    return [torch.randn(32, 64)]

def get_init_inputs():
    return []
""",
)
HEAD = """
import torch, triton
import triton.language as tl
from torch import nn

@triton.jit
def copy(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n), mask=i < n)

@triton.jit
def swish(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(o + i, v / (1 + tl.exp(-v)), mask=i < n)

def run(kernel, x):
    o = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 512),)](x, o, x.numel(), B=512)
    return o
"""
DISPATCH_OFF = """
from torch.utils._python_dispatch import _disable_current_modes

class ModelNew(nn.Module):
    def forward(self, x):
        with _disable_current_modes():
            y = torch.nn.functional.silu(x)
        return run(copy, y)
"""
NUMPY = """
import numpy as np

@torch.library.custom_op("kerneldojo_test::swish", mutates_args=())
def numpy_swish(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy() / (1 + np.exp(-x.numpy())))

class ModelNew(nn.Module):
    def forward(self, x):
        return run(copy, numpy_swish(x))
"""
CUSTOM_OP = """
@torch.library.custom_op("kerneldojo_test::swish", mutates_args=())
def own_swish(x: torch.Tensor) -> torch.Tensor:
    return run(swish, x)

class ModelNew(nn.Module):
    def forward(self, x):
        return own_swish(x)
"""
BEFORE_THE_CALL = """
import sys

class ModelNew(nn.Module):
    answer = None

    def buffers(self, recurse=True):
        arguments = sys._getframe(1).f_locals.get("arguments")
        if arguments and self.answer is None:
            self.answer = nn.Parameter(torch.nn.functional.silu(arguments[0]))
        return super().buffers(recurse)

    parameters = buffers

    def forward(self, x):
        answer, self.answer = self.answer, None
        return run(swish, x) if answer is None else run(copy, answer)
"""


def verdict(body: str) -> Evaluation:
    return judge(PROBLEM, Candidate(source=HEAD + body), device="model:h100", protocol="quick")


@pytest.mark.parametrize("body", [DISPATCH_OFF, NUMPY])
def test_a_kernel_that_carries_on_what_was_computed_off_the_meter_gains_nothing(body: str) -> None:
    evaluation = verdict(body)
    assert evaluation.speedup is not None
    assert evaluation.speedup < 1
    assert evaluation.coverage is not None
    assert evaluation.coverage < 0.5
    assert any("all of the reference's work is charged" in note for note in evaluation.notes)


def test_a_kernel_behind_an_operator_of_its_own_is_charged_once() -> None:
    evaluation = verdict(CUSTOM_OP)
    assert [kernel.name for kernel in evaluation.kernels] == ["swish"]
    assert evaluation.coverage == 1
    assert evaluation.speedup == pytest.approx(2.1, abs=0.1)


def test_nothing_of_a_candidates_runs_between_its_inputs_and_the_meter() -> None:
    evaluation = verdict(BEFORE_THE_CALL)
    assert [kernel.name for kernel in evaluation.kernels] == ["swish"]


def claimed(own: list[dict[str, Any]], compulsory: int) -> Findings:
    """What is made of a claim, where the reference copies 64 KiB."""
    moved = [{"storage": storage, "num_bytes": 1 << 15} for storage in (0, 1)]
    theirs = {"own": False, "name": "aten::clone", "pattern": "elementwise", "reads": moved[:1], "writes": moved[1:]}
    seen = Rounds(steady_works=[own], steady_reference_works=[[theirs]], steady_copies=[[]])
    findings = Findings(PROBLEM, Candidate(source=HEAD), protocol("quick"), "model:h100", compulsory_bytes=compulsory)
    pricing.fill(findings, seen, [], parse("model:h100"))
    return findings


def test_a_candidate_whose_counted_work_cannot_have_seen_the_inputs_pays_for_all_of_the_references_work() -> None:
    def own(accessed: int) -> list[dict[str, Any]]:
        return [{"own": True, "name": "store", "num_programs": 64, "accessed_bytes": accessed}]

    told, honest, little = claimed(own(32), 1 << 16), claimed(own(1 << 16), 1 << 16), claimed(own(32), 0)
    assert told.speedup is not None and told.speedup < 1
    assert told.notes
    assert not honest.notes, "it moved what it had to"
    assert not little.notes, "nothing has to be moved: a problem whose answer depends on no input"
