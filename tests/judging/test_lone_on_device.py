"""On a GPU that claims to be small: a problem for which there is no room beside a silent twin."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from kerneldojo import Candidate, Problem
from kerneldojo.judging import Judge, alone, division, gpu
from kerneldojo.judging.alone import Alone
from kerneldojo.schema import Evaluation, Status

pytestmark = pytest.mark.gpu

TOTAL_BYTES = 24 << 30
SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(4096, 90112)]

def get_init_inputs():
    return []
"""
PROBLEM = Problem(name="large_relu", source=SOURCE)
KERNEL = """
import torch, triton, triton.language as tl
from torch import nn

@triton.jit
def relu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n)
    tl.store(y_ptr + at, tl.maximum(x, 0.0), at < n)

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 4096),)](x, y, x.numel(), BLOCK=4096)
        return y
"""
WATCHED = f"# getattr(\n{KERNEL}"
"""Has its twin in any case."""
NO_CAUSE = KERNEL.replace("return y", "return torch.relu(x)")


ROOMS = Alone.of(TOTAL_BYTES)


def summing(num_columns: int) -> Problem:
    source = SOURCE.replace("torch.relu(x)", "torch.sum(x, dim=1)").replace("(4096, 90112)", f"(8192, {num_columns})")
    return Problem(name="large_sum", source=source)


REDUCTION, LARGEST = summing(61_440), summing(75_776)
SUM = """
import torch, triton, triton.language as tl
from torch import nn

@triton.jit
def row_sum(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * n + at, at < n, 0.0)
    tl.store(y_ptr + row, tl.sum(total, 0))

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], device=x.device)
        row_sum[(x.shape[0],)](x, y, x.shape[1], BLOCK=2048)
        return y
"""


@pytest.fixture(scope="module")
def judge() -> Generator[Judge]:
    with pytest.MonkeyPatch.context() as patch, Judge(num_verdicts=2) as judge:
        patch.setattr(gpu, "divide", lambda num, _, num_ahead: division.divide(num, TOTAL_BYTES, num_ahead))
        patch.setattr(gpu, "larger", lambda *_: ())
        patch.setattr(Alone, "of", classmethod(lambda _, __: ROOMS))
        yield judge


def test_it_fits_only_without_a_twin_beside() -> None:
    num_bytes = 4 * 4096 * 90112
    assert alone.whole(TOTAL_BYTES).exchange_bytes < num_bytes < alone.lone(TOTAL_BYTES).exchange_bytes
    num_bytes = 4 * 8192 * 61440
    assert alone.lone(TOTAL_BYTES).exchange_bytes < num_bytes < alone.slim(TOTAL_BYTES).exchange_bytes
    num_bytes = 4 * 8192 * 75_776
    assert alone.slim(TOTAL_BYTES).exchange_bytes < num_bytes < alone.sparse(TOTAL_BYTES).exchange_bytes


@pytest.mark.parametrize(
    ("source", "status"),
    [
        (KERNEL, Status.PASSED),
        (WATCHED, Status.PASSED),
        (NO_CAUSE, Status.EXPLOIT),
        (f"# getattr(\n{NO_CAUSE}", Status.EXPLOIT),
    ],
    ids=["honest", "honest, with a twin", "no cause", "no cause, with a twin"],
)
def test_it_is_judged_as_any_other(judge: Judge, source: str, status: Status) -> None:
    found: Evaluation = judge.judge(PROBLEM, Candidate(source=source), device="cuda:0")
    assert found.status is status, found.message
    assert found.kernels or status is not Status.PASSED
    assert judge._gpus[0].large[PROBLEM.hash] == 3


@pytest.mark.parametrize(
    ("source", "status"),
    [
        (SUM, Status.PASSED),
        (f"# getattr(\n{SUM}", Status.PASSED),
        (SUM.replace("return y", "return torch.sum(x, dim=1)"), Status.EXPLOIT),
        (SUM.replace("at < n, 0.0)", "at < n - 1, 0.0)"), Status.INCORRECT),
    ],
    ids=["honest", "honest, with a twin", "no cause", "one too few"],
)
def test_so_is_what_returns_little_of_even_more(judge: Judge, source: str, status: Status) -> None:
    found: Evaluation = judge.judge(REDUCTION, Candidate(source=source), device="cuda:0")
    assert found.status is status, found.message
    assert judge._gpus[0].large[REDUCTION.hash] == 4


@pytest.mark.parametrize(
    ("source", "status"),
    [(SUM, Status.PASSED), (SUM.replace("at < n, 0.0)", "at < n - 1, 0.0)"), Status.INCORRECT)],
    ids=["honest", "one too few"],
)
def test_and_what_returns_little_of_nearly_an_eighth_of_all(judge: Judge, source: str, status: Status) -> None:
    found: Evaluation = judge.judge(LARGEST, Candidate(source=source), device="cuda:0")
    assert found.status is status, found.message
    assert judge._gpus[0].large[LARGEST.hash] == 5


CONVOLUTION = Problem(
    name="large_convolution",
    source="""
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.points = nn.Conv2d(64, 128, 1, bias=False)

    def forward(self, x):
        return self.points(x)

def get_inputs():
    return [torch.rand(3, 64, 1024, 960)]

def get_init_inputs():
    return []
""",
)
COPIED = f"""
import torch, triton, triton.language as tl
{CONVOLUTION.source}

@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, at < n), at < n)

class ModelNew(Model):
    def forward(self, x):
        x = super().forward(x)
        y = torch.empty_like(x)
        copy[(triton.cdiv(x.numel(), 4096),)](x, y, x.numel(), BLOCK=4096)
        return y
"""


@pytest.mark.parametrize(
    ("source", "status"),
    [
        (COPIED, Status.PASSED),
        (COPIED.replace("return y", "return x"), Status.EXPLOIT),
        (COPIED.replace("tl.load(x_ptr + at, at < n)", "1.01 * tl.load(x_ptr + at, at < n)"), Status.INCORRECT),
    ],
    ids=["honest", "no cause", "wrong"],
)
def test_so_is_what_makes_twice_as_much_as_it_returns_which_is_more_than_it_takes(
    judge: Judge, source: str, status: Status
) -> None:
    found: Evaluation = judge.judge(CONVOLUTION, Candidate(source=source), device="cuda:0")
    assert found.status is status, found.message
    assert judge._gpus[0].large[CONVOLUTION.hash] == 2
