"""Problems whose inputs and outputs are of unusual kinds or lie in unusual places, and honest kernels for them.

Whoever does as the reference does must not be called a cheat for it. What cannot be judged is refused in one line.
"""

from __future__ import annotations

import pytest
from copying import COPY

from kerneldojo import Candidate, Problem
from kerneldojo.judging import Judge
from kerneldojo.schema import Evaluation, Status

SOURCE = """
import torch
from torch import nn
from typing import NamedTuple

class Both(NamedTuple):
    one: torch.Tensor
    other: torch.Tensor

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {arguments}):
        {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""
CHANGE = """
import triton
import triton.language as tl

@triton.jit
def change(x_ptr, count, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count)
    tl.store(x_ptr + at, x * FACTOR, mask=at < count)

class ModelNew(nn.Module):
    def forward(self, x):
        change[(triton.cdiv(x.numel(), 256),)](x, x.numel(), FACTOR=2.0, BLOCK=256)
        return x
"""
"""Works in place."""
WRITE = """
import triton
import triton.language as tl

@triton.jit
def write(cache_ptr, new_ptr, at, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    new = tl.load(new_ptr + row * n + column, mask=column < n)
    tl.store(cache_ptr + row * stride + at * n + column, new, mask=column < n)

class ModelNew(nn.Module):
    def forward(self, cache, new):
        rows, _, n = cache.shape
        write[(rows,)](cache, new, 3, n, cache.stride(0), BLOCK=128)
        return cache
"""
SCALE = """
import triton
import triton.language as tl

@triton.jit
def scale(x_ptr, w_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x, w = tl.load(x_ptr + row * n + at, at < n), tl.load(w_ptr + at, at < n)
    tl.store(y_ptr + row * n + at, x * w, at < n)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(96))

    def forward(self, x):
        y = torch.empty_like(x)
        scale[(x.shape[0],)](x, self.w, y, x.shape[1], BLOCK=128)
        return self.w, y
"""
"""Hands out its weight."""
X = "torch.randn(64, 96)"
CACHE = "torch.randn(8, 16, 96), torch.randn(8, 96)"


def problem(forward: str, inputs: str = X, arguments: str = "x", init: str = "pass") -> Problem:
    body = forward.replace("\n", "\n        ")
    return Problem(name="odd", source=SOURCE.format(forward=body, inputs=inputs, arguments=arguments, init=init))


PLACES = {
    "empty": problem("return x * 2, x[:0]"),
    "empty first": problem("return x[:0], x * 2"),
    "input": problem("return x, x * 2"),
    "view of an input": problem("return x.t(), x * 2"),
    "weight": problem("return self.w, x * self.w", init="self.w = nn.Parameter(torch.randn(96))"),
    "in place": problem("x.mul_(2)\nreturn x"),
    "transposed": problem("return (x * 2).t()"),
    "expanded": problem("return x.sum(1, keepdim=True).expand(-1, 96), x * 2"),
    "with gaps": problem("return (x * 2)[:, ::2]"),
    "twice": problem("y = x * 2\nreturn y, y"),
    "beside its view": problem("y = x * 2\nreturn y, y[:, :3]"),
}
"""By what an output is, or where it lies."""
KINDS = {
    "nested": problem("return {'a': x * 2, 'b': [x + 1, (x - 1,)]}"),
    "named": problem("return Both(x * 2, x + 1)"),
    "flags and indices": problem("return x > 0, x.argmax(1), (x * 9).int(), x * 2"),
    "doubles": problem("return (x * 2).double(), (x * 2).bfloat16()"),
    "no dimension": problem("return (x * 2).sum(), x * 2"),
    "strided input": problem("return x * 2 + 1", "torch.randn(96, 64).t()"),
    "expanded input": problem("return x * 2 + 1", "torch.randn(64, 1).expand(64, 96)"),
    "inputs of one memory": problem(
        "return x[:32] + y[:32] * 3", "*(lambda b: (b[:40], b[20:]))(torch.randn(80, 96))", "x, y"
    ),
    "empty input": problem("return torch.cat([x, y]) * 2", "torch.randn(64, 96), torch.empty(0, 96)", "x, y"),
    "complex input": problem("return x.real * 2, x.imag * 3", "torch.randn(64, 96, dtype=torch.complex64)"),
    "text and nothing": problem(
        "return x * 2 if how == 'twice' and y is None else x", f"{X}, 'twice', None", "x, how, y"
    ),
    "sparse within": problem("return torch.sparse.mm(x.relu().to_sparse(), x.t())"),
    "eight bits as bytes": problem(
        "return x.view(torch.float8_e4m3fn).float() * 2",
        "torch.randn(64, 96).to(torch.float8_e4m3fn).view(torch.uint8)",
    ),
}
"""By what inputs and outputs are of."""
TABLE = Problem(
    name="table",
    source=SOURCE.replace("(self)", "(self, table, config)", 1)
    .replace("return []", "return [torch.arange(96.0), {{'scales': (2.0, 3.0), 'of': torch.ones(3)}}]")
    .format(
        init="self.table, self.of = table, config['of']\n        self.register_buffer('same', table)",
        arguments="x",
        forward="return x * self.table + self.of.sum() * self.same",
        inputs="torch.randn(64, 96)",
    ),
)
"""Its constructor is given tensors, and keeps them as they are."""
REFUSED = {
    "eight-bit input": (problem("return x.float() * 2", f"{X}.to(torch.float8_e4m3fn)"), "input 0 is of float8_e4m3fn"),
    "eight-bit output": (problem("return x * 3, (x * 2).to(torch.float8_e5m2)"), "output 1 is of float8_e5m2"),
    "lazy": (
        problem("return self.m(x)", init="self.m = nn.LazyLinear(32)"),
        "m.weight has no size before the first call",
    ),
    "complex output": (problem("return torch.fft.rfft(x)"), "output 0 is complex"),
    "number": (problem("return x * 2, 5"), "it returns a number beside its tensors"),
    "shape by content": (problem("return x[x > 0]"), "depends on the values of the inputs"),
    "count of calls": (
        problem("self.b.add_(1)\nreturn x * self.b", init="self.register_buffer('b', torch.zeros(96))"),
        "two calls of one instance differ",
    ),
    "kept result": (
        problem("self.k = x.mean(0) + self.k\nreturn x * self.k", init="self.k = 0.0"),
        "two calls of one instance differ",
    ),
}
DEVICES = ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)]


def verdict(judge: Judge, device: str, one: Problem, candidate: str) -> Evaluation:
    source = f"import torch\nfrom torch import nn\n{one.source if 'Model)' in candidate else ''}{candidate}"
    return judge.judge(one, Candidate(source=source), device=device, allow_degenerate=True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", [*PLACES, *KINDS])
def test_who_returns_what_the_reference_does_passes(judge: Judge, device: str, name: str) -> None:
    found = verdict(judge, device, {**PLACES, **KINDS}[name], COPY)
    assert found.status is Status.PASSED, found.message


@pytest.mark.parametrize("device", DEVICES)
def test_tensors_that_a_constructor_is_given_are_its_own(judge: Judge, device: str) -> None:
    found = verdict(judge, device, TABLE, COPY)
    assert found.status is Status.PASSED, found.message


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_judged_is_refused_in_one_line(judge: Judge, device: str, name: str) -> None:
    one, reason = REFUSED[name]
    found = verdict(judge, device, one, COPY)
    assert found.status is Status.INVALID_PROBLEM, found.message
    assert reason in found.message
    assert "\n" not in found.message


@pytest.mark.gpu
def test_what_lies_on_the_host_is_refused(judge: Judge) -> None:
    found = verdict(judge, "cuda:0", problem("return x * 2, torch.tensor(3.0)"), COPY)
    assert found.status is Status.INVALID_PROBLEM, found.message
    assert "output 1 is on cpu" in found.message


@pytest.mark.parametrize("device", DEVICES)
def test_who_works_in_place_as_the_reference_does_passes(judge: Judge, device: str) -> None:
    doubled = PLACES["in place"]
    found = verdict(judge, device, doubled, CHANGE)
    assert found.status is Status.PASSED, found.message
    for wrong in (CHANGE.replace("2.0", "3.0"), CHANGE.replace("return x", "return x.clone() * 0.5")):
        assert verdict(judge, device, doubled, wrong).status is Status.INCORRECT
    cache = problem("cache[:, 3] = new\nreturn cache", CACHE, "cache, new")
    found = verdict(judge, device, cache, WRITE)
    assert found.status is Status.PASSED, found.message
    assert verdict(judge, device, cache, WRITE.replace("new, 3, n", "new, 4, n")).status is Status.INCORRECT


@pytest.mark.parametrize("device", DEVICES)
def test_who_hands_out_its_weight_as_the_reference_does_passes(judge: Judge, device: str) -> None:
    found = verdict(judge, device, PLACES["weight"], SCALE)
    assert found.status is Status.PASSED, found.message
    kept = SCALE.replace("y = torch.empty_like(x)", "self.y = y = getattr(self, 'y', x * 0)")
    found = verdict(judge, device, PLACES["weight"], kept)
    assert found.status is Status.INCORRECT, "it keeps the other output, too"
    assert "reused output buffer" in found.message


@pytest.mark.parametrize("device", DEVICES)
def test_who_works_in_place_where_the_reference_does_not_is_wrong(judge: Judge, device: str) -> None:
    found = verdict(judge, device, problem("return x * 2"), CHANGE)
    assert found.status is Status.INCORRECT
    assert "changed its inputs" in found.message
    for forward in ("return x * 2", "x.mul_(2)\nreturn x"):
        found = verdict(
            judge, device, problem(forward), CHANGE.replace("return x", "self.y = x\n        return self.y")
        )
        assert (found.status is Status.PASSED) is ("mul_" in forward), found.message
