"""A source is imported twice: where its kernels run, and where they are compiled for the target. Both answer alike."""

from __future__ import annotations

import pytest

from kerneldojo import Candidate, Problem, judge
from kerneldojo.judging.host import HostBench
from kerneldojo.judging.submission import Submission
from kerneldojo.schema import Status

PROBLEM = Problem(
    name="triple",
    source="""\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return 3 * x


def get_inputs():
    return [torch.randn(1000)]


def get_init_inputs():
    return []
""",
)
SOURCE = """\
import os
import torch
import triton
import triton.language as tl
from torch import nn

{first}


@triton.jit
def triple(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, 3 * tl.load(x_ptr + at, mask=at < n), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        triple[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK=BLOCK)
        return y
"""
ASKS = """\
driver = triton.runtime.driver.active
DEVICE = driver.get_active_torch_device()
TARGET = driver.get_current_target()
PROPERTIES = driver.utils.get_device_properties(DEVICE.index)
assert DEVICE == torch.ones(1, device="cuda").device and torch.cuda.is_available()
assert (TARGET.backend, TARGET.arch) == ("cuda", 80) and torch.cuda.get_device_capability() == (8, 0)
BLOCK = 256 if PROPERTIES["multiprocessor_count"] == 108 else None
plain = torch.compile(lambda x: 3 * x)  # Dynamo finds torch.cuda as it is now.
"""
LAUNCHES = """
x = torch.ones(1000, device="cuda")
y = torch.empty_like(x)
triple[(4,)](x, y, 1000, BLOCK=BLOCK)
warm = triple.warmup(x, y, 1000, BLOCK=BLOCK, grid=(4,))
warm._init_handles()
assert warm.n_regs > 0


@triton.autotune([triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=["n"])
@triton.jit
def tuned(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, 3 * tl.load(x_ptr + at, mask=at < n), mask=at < n)


tuned[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, y, 1000)
"""
REFUSES = """\
BLOCK = 256
if not os.environ.get("TRITON_INTERPRET"):
    raise RuntimeError("not here")
"""


def test_a_source_may_ask_for_the_device_when_it_is_imported():
    evaluation = judge(PROBLEM, Candidate(source=SOURCE.format(first=ASKS)), device="model:a100")
    assert evaluation.status is Status.PASSED, evaluation.message


@pytest.mark.parametrize("device", ["cpu", "model:a100"])
def test_a_source_may_launch_its_kernels_when_it_is_imported(device: str):
    source = SOURCE.format(first="BLOCK = 256") + LAUNCHES
    evaluation = judge(PROBLEM, Candidate(source=source), device=device)
    assert evaluation.status is Status.PASSED, evaluation.message


def test_one_that_cannot_be_imported_where_it_is_compiled_is_a_compile_error():
    candidate = Candidate(source=SOURCE.format(first=REFUSES))
    evaluation = judge(PROBLEM, candidate, device="model:a100", timeout=20)
    assert evaluation.status is Status.COMPILE_ERROR, evaluation.message
    assert "not here" in evaluation.message


def test_a_process_to_compile_in_is_begun_only_when_there_is_something_to_compile(monkeypatch: pytest.MonkeyPatch):
    begun: list[str] = []
    enclose = HostBench.compiler

    def compiler(self: HostBench, submission: Submission, *conditions: object):
        begun.append(submission.source)
        return enclose(self, submission, *conditions)

    monkeypatch.setattr(HostBench, "compiler", compiler)
    right = SOURCE.format(first="BLOCK = 512")
    wrong, fails = right.replace("3 * tl.load", "2 * tl.load"), right.replace("return y", "return z")
    for source, status in (
        (wrong, Status.INCORRECT),
        (fails, Status.RUNTIME_ERROR),
        (right, Status.PASSED),
        (right, Status.PASSED),  # What it was compiled to is known.
    ):
        assert judge(PROBLEM, Candidate(source=source), device="model:a100").status is status
    # A call that fails has shown signatures: what does not compile for the target fails for that.
    assert begun == [fails, right]
