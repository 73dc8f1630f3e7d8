"""A call without numbers: what does not compile is told, and nothing else is held against anybody."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import pytest

from kerneldojo import Candidate, Problem
from kerneldojo.judging.contestant import Contestant
from kerneldojo.judging.processes import ForkServer, NoArena, Session
from kerneldojo.judging.protocol import protocol
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.submission import Submission
from kerneldojo.judging.surroundings import request
from kerneldojo.schema import Status

SETTINGS = protocol("quick")
PROBLEM = Problem(
    name="scaled",
    source="""
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm = nn.LayerNorm(size)

    def forward(self, x):
        return torch.tanh(self.norm(x))

def get_inputs():
    return [torch.rand(1 << 20, 1 << 14)]  # 64 GiB, if there were any.

def get_init_inputs():
    return [1 << 14]
""",
)
SOURCE = """
import torch, triton, triton.language as tl
from torch import nn

{decorator}@triton.jit
def squash(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n)
    tl.store(y_ptr + at, {value}, at < n)

class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm = nn.LayerNorm(size)

    def forward(self, x):
        x = self.norm(x.cuda())
        assert x.is_cuda and x.device.type == "cuda"
        y = torch.empty_like(x)
        {before}squash[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), {block})
        return y
"""
TANH, MISSING = "2 * tl.sigmoid(2 * x) - 1", "tl.tanh(x)"
TUNED = "@triton.autotune([triton.Config({{'BLOCK': 256 << i}}, num_warps=4) for i in range({})], key=['n'])\n"


def source(value: str, before: str = "", decorator: str = "", block: str = "BLOCK=1024") -> str:
    return SOURCE.format(value=value, before=before, decorator=decorator, block=block)


@contextlib.contextmanager
def imported(server: ForkServer, text: str) -> Generator[Contestant]:
    session = Session(server, NoArena(), request(SETTINGS, "h200"))
    try:
        contestant = Contestant(session, Submission(Candidate(source=text), PROBLEM), SETTINGS.timeout)
        assert contestant.import_only(60, 60)
        yield contestant
    finally:
        session.close()


def refused(server: ForkServer, text: str) -> Ruling:
    with imported(server, text) as contestant, pytest.raises(Ruling) as caught:
        contestant.call_dry("h200", 60)
    return caught.value


BROKEN = {
    "a function that does not exist": source(MISSING),
    "a dimension that no grid has": source("x + tl.program_id(3)"),
    "under an autotuner": source(MISSING, decorator=TUNED.format(3), block=""),
    "beyond what is tuned": source(MISSING, decorator=TUNED.format(30), block=""),
    "in the constructor": source(TANH).replace(
        "nn.LayerNorm(size)\n\n", "nn.LayerNorm(size)\n        self(torch.rand(8, size))\n\n"
    ).replace(TANH, MISSING),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_kernel_that_does_not_compile_is_told_with_its_line(server: ForkServer, case: str) -> None:
    ruling = refused(server, BROKEN[case])
    assert ruling.status is Status.COMPILE_ERROR
    assert ruling.message.startswith("forward: CompilationError: ")
    assert "has no attribute 'tanh'" in ruling.message or "program_id axis" in ruling.message
    assert "squash[" in ruling.message, "the line that launches it"


WELL = {
    "honest": source(TANH),
    "tuned": source(TANH, decorator=TUNED.format(30), block=""),
    "some configurations only": source(
        TANH, decorator=TUNED.format(2), block=""
    ).replace("    at = ", "    tl.static_assert(BLOCK == 512)\n    at = "),
    "a broken kernel that nobody launches": source(MISSING).replace("        squash[", "        0 and squash["),
    "who helps himself": source(MISSING).replace("        squash[", "        try:\n          squash[").replace(
        "        return y", "        except Exception:\n          y = torch.tanh(x)\n        return y"
    ),
    "broken in training only": source(MISSING, before="if not self.training: return torch.tanh(x)\n        "),
    "numbers are needed": source(MISSING, before="assert x.sum().item() > 0\n        "),
    "it raises": source(MISSING, before="raise RuntimeError\n        "),
    "it ends": source(MISSING, before="import os; os._exit(0)\n        "),
    "it leaves": source(MISSING, before="raise SystemExit\n        "),
    "the compiler is asked for more": source(TANH).replace("        squash[", "        done = squash[").replace(
        "        return y", "        assert done.n_regs < 99\n        return y"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WELL)
def test_nothing_else_is_held_against_anybody(server: ForkServer, case: str) -> None:
    with imported(server, WELL[case]) as contestant:
        contestant.call_dry("h200", 60)


def test_who_takes_too_long_is_left_to_the_device(server: ForkServer) -> None:
    with imported(server, source(MISSING, before="while True: pass\n        ")) as contestant:
        contestant.call_dry("h200", 0.5)


@pytest.mark.parametrize("kind", ["unsupported_on_device", "out_of_device_memory", "runtime_error"])
def test_a_claim_of_another_kind_counts_for_nothing(server: ForkServer, kind: str) -> None:
    """What runs there may answer what it likes: nobody is let off, and nobody gets more of a device, for a word."""
    lies = "from kerneldojo.contestant.runner import Runner\n"
    lies += f"Runner.do_dry_call = lambda *_: {{'failure': {{'kind': {kind!r}, 'text': '', 'line': 0}}}}\n"
    with imported(server, lies + source(TANH)) as contestant:
        contestant.call_dry("h200", 60)
