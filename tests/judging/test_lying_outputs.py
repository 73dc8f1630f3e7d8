"""How an output lies: with gaps, transposed, expanded. Nobody is wrong for it, and nobody is spared a write by it."""

from __future__ import annotations

import pytest
from copying import COPY
from test_odd_problems import PLACES, problem

from kerneldojo import Candidate, Problem
from kerneldojo.judging import Judge
from kerneldojo.judging.order import COPIED
from kerneldojo.schema import Evaluation, Status

DEVICES = ["cpu", "model:h200", pytest.param("cuda:0", marks=pytest.mark.gpu)]
SWISH = problem("return x * torch.sigmoid(x)")
KERNEL = """
import torch, triton, triton.language as tl
from torch import nn

@triton.jit
def swish(x_ptr, y_ptr, n, stride, step, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + at, at < n)
    tl.store(y_ptr + row * stride + at * step, x * tl.sigmoid(x), at < n)

class ModelNew(nn.Module):
    def forward(self, x):
        rows, n = x.shape
        y = {buffer}
        swish[(rows,)](x, y, n, y.stride(0), y.stride(1), BLOCK=128)
        return {result}
"""
LIE = {
    "as the reference's": ("torch.empty_like(x)", "y"),
    "with gaps": ("torch.empty(rows, n + 5, device=x.device)", "y[:, :n]"),
    "every other": ("torch.empty(rows, 2 * n, device=x.device)[:, ::2]", "y"),
    "transposed": ("torch.empty(n, rows, device=x.device).t()", "y"),
    "transposed, with gaps": ("torch.empty(n, rows + 3, device=x.device).t()[:rows]", "y"),
}
EXPANDED = """
import torch, triton, triton.language as tl
from torch import nn

@triton.jit
def total(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(y_ptr + row, tl.sum(tl.load(x_ptr + row * n + at, at < n, 0.0)))

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], 1, device=x.device)
        total[(x.shape[0],)](x, y, x.shape[1], BLOCK=128)
        return y.expand(-1, x.shape[1])
"""


def verdict(judge: Judge, device: str, one: Problem, source: str) -> Evaluation:
    return judge.judge(one, Candidate(source=source), device=device, allow_degenerate=True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", LIE)
def test_an_output_may_lie_in_any_order_and_with_gaps(judge: Judge, device: str, name: str) -> None:
    buffer, result = LIE[name]
    found = verdict(judge, device, SWISH, KERNEL.format(buffer=buffer, result=result))
    assert found.status is Status.PASSED, found.message
    is_charged = device != "cpu" and name != "as the reference's"
    assert (COPIED.format(which="the output") in found.notes) is is_charged
    # What lies in the gaps is nobody's; what lies between them is looked at.
    source = KERNEL.format(buffer=buffer, result=result).replace("x * tl.sigmoid(x), at < n", "x, at < n")
    assert verdict(judge, device, SWISH, source).status is Status.INCORRECT


@pytest.mark.parametrize("device", DEVICES)
def test_a_transposed_output_is_as_good_as_the_reference_s_where_that_is_transposed(judge: Judge, device: str) -> None:
    one = PLACES["transposed"]
    source = f"import torch\nfrom torch import nn\n{one.source}{COPY.replace('return copied(', 'return of(copied(')}"
    for of in ("lambda y: y.contiguous()", "lambda y: y.t().contiguous().t()"):
        forward = source.replace("super().forward(*inputs))", "super().forward(*inputs)))")
        found = verdict(judge, device, one, f"{forward}\nof = {of}\n")
        assert found.status is Status.PASSED, found.message
        assert not [note for note in found.notes if note == COPIED.format(which="the output")]


@pytest.mark.parametrize("device", DEVICES)
def test_who_expands_what_the_reference_writes_is_wrong_and_who_does_as_it_does_is_not(
    judge: Judge, device: str
) -> None:
    found = verdict(judge, device, problem("return x.sum(1, keepdim=True).expand(-1, 96)"), EXPANDED)
    assert found.status is Status.PASSED, found.message
    found = verdict(judge, device, problem("return x.sum(1, keepdim=True).expand(-1, 96).contiguous()"), EXPANDED)
    assert found.status is Status.INCORRECT
    assert "share memory" in found.message


@pytest.mark.parametrize("device", DEVICES)
def test_what_has_gaps_must_outlive_the_next_call_too(judge: Judge, device: str) -> None:
    buffer = "self.__dict__.setdefault('kept', torch.empty(rows, n + 5, device=x.device))"
    found = verdict(judge, device, SWISH, KERNEL.format(buffer=buffer, result="y[:, :n]"))
    assert found.status is Status.INCORRECT
    assert "reused output buffer" in found.message


def test_a_transposed_view_is_no_gain_on_a_modelled_device(judge: Judge) -> None:
    """Of two kernels that move as many bytes, that which leaves the answer in another order pays for a copy."""
    ordered, transposed = (
        verdict(judge, "model:h200", SWISH, KERNEL.format(buffer=buffer, result=result))
        for buffer, result in (LIE["as the reference's"], LIE["transposed"])
    )
    assert ordered.timing is not None and transposed.timing is not None
    assert transposed.timing.median_ms > ordered.timing.median_ms
    assert [one.name for one in transposed.kernels if "order" in one.name] == ["copy into the reference's order"]
    assert not [one.name for one in ordered.kernels if "order" in one.name]
