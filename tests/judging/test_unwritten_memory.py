"""Memory that a candidate asks for and has not written holds nothing, least of all an answer."""

from __future__ import annotations

import pytest

from kerneldojo import Candidate, Evaluation, Problem, Status, judge

PROBLEM = Problem(
    name="there_and_back",
    source="""
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x, w, a):
        return x @ w - a + a

def get_inputs():
    return [torch.randn(16, 32), torch.randn(32, 32), torch.randn(16, 32)]

def get_init_inputs():
    return []
""",
)
HEAD = """
import torch, triton
import triton.language as tl
from torch import nn

@triton.jit
def add(x, a, o, n, LEFT_OUT: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    mask = (i >= LEFT_OUT) & (i < n)
    tl.store(o + i, tl.load(x + i, mask=mask) + tl.load(a + i, mask=mask), mask=mask)
"""
HONEST = """
class ModelNew(nn.Module):
    def forward(self, x, w, a):
        x = x @ w
        x = x - a
        out = torch.empty_like(x)
        add[(triton.cdiv(out.numel(), 128),)](x, a, out, out.numel(), LEFT_OUT=0, B=128)
        return out
"""
LEFT_BEHIND = """
class ModelNew(nn.Module):
    def forward(self, x, w, a):
        torch.sub(x @ w, 0)
        out = ALLOCATE
        add[(triton.cdiv(out.numel(), 128),)](out, a, out, out.numel(), LEFT_OUT=LEAVES, B=128)
        return out
"""
OWN_OPERATOR = """
@torch.library.custom_op("mine::NAME", mutates_args=())
def own_operator(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x @ w

class ModelNew(nn.Module):
    def forward(self, x, w, a):
        y = own_operator(x, w)
        unread = torch.empty_like(y)
        add[(triton.cdiv(y.numel(), 128),)](y, a, unread, y.numel(), LEFT_OUT=0, B=128)
        return y
"""


def verdict(body: str) -> Evaluation:
    return judge(PROBLEM, Candidate(source=HEAD + body), device="model:h100", protocol="quick")


def test_a_kernel_that_undoes_the_librarys_work_causes_its_answer() -> None:
    """The product lay, freed, where the kernel's output went: with kernels silenced it was the right answer."""
    for _ in range(3):
        evaluation = verdict(HONEST)
        assert evaluation.status is Status.PASSED, evaluation.message


@pytest.mark.parametrize("leaves", [512, 1])
@pytest.mark.parametrize(
    "allocate",
    [
        "torch.empty(16, 32, device=x.device)",
        "torch.empty_like(a)",
        "x.new_empty(16, 32)",
        "torch.empty_strided((16, 32), (32, 1), device=x.device)",
        "torch.Tensor(16, 32)",
    ],
)
def test_an_answer_left_behind_in_freed_memory_is_none(allocate: str, leaves: int) -> None:
    evaluation = verdict(LEFT_BEHIND.replace("ALLOCATE", allocate).replace("LEAVES", str(leaves)))
    assert evaluation.status is Status.INCORRECT, evaluation.message


@pytest.mark.parametrize("name", ["empty", "empty_like"])
def test_an_operator_of_its_own_by_an_allocators_name_hides_nothing(name: str) -> None:
    """Its answer is no new memory: spoilt in the silenced call alone, the decoy beside it would seem to matter."""
    evaluation = verdict(OWN_OPERATOR.replace("NAME", name))
    assert [found.name for found in evaluation.exploits] == ["no_causal_kernel"], evaluation.message


def test_memory_is_nan_where_the_work_is_counted_too() -> None:
    assert verdict(HONEST.replace("add[", "assert out.isnan().all(); add[")).status is Status.PASSED
    assert verdict(HONEST.replace("add[", "assert not out.isnan().all(); add[")).status is Status.RUNTIME_ERROR
