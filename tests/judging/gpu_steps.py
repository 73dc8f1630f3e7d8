"""The stage on which a verdict on a GPU is rehearsed with real processes on the host; `test_gpu_steps` says how.

A bench whose device is this machine, windows that look at other processes instead of a clock, and candidates.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kerneldojo import Candidate, Problem
from kerneldojo.contestant.arena import HostArena
from kerneldojo.devices.cuda.fits import Window
from kerneldojo.judging import cuda, preparation
from kerneldojo.judging.alone import Alone
from kerneldojo.judging.audits import Auditor
from kerneldojo.judging.gated_bench import Bench
from kerneldojo.judging.outputs import is_right
from kerneldojo.judging.processes import ForkServer, Session
from kerneldojo.judging.protocol import Protocol, protocol
from kerneldojo.judging.reference import Reference
from kerneldojo.judging.reference_times import Settled
from kerneldojo.judging.rounds import secret_seed
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.shares import Shares
from kerneldojo.judging.verdict import Findings
from kerneldojo.languages import language_of
from kerneldojo.schema import KernelTime
from kerneldojo.schema.pace import Pace

PROBLEM = Problem(
    name="swish",
    source="""
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)

def get_inputs():
    return [torch.randn(4, 256)]

def get_init_inputs():
    return []
""",
)
KERNEL = """
import torch, triton, triton.language as tl
from torch import nn

@triton.jit
def swish(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n)
    tl.store(y_ptr + at, x * tl.sigmoid(x), at < n)
"""
CALL = """
class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        swish[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""
HONEST = KERNEL + CALL
LIBRARY = (
    "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x * torch.sigmoid(x)\n"
)
DIES_AS_IT_OPENS = HONEST + (
    "import os\nfrom kerneldojo.contestant.host_platform import HostPlatform\n"
    "HostPlatform.open = lambda self: os._exit(3)\n"
)
TICKS = HONEST.replace(
    "        y = torch.empty_like(x)",
    """        import pathlib, time
        while not pathlib.Path("enough").exists():
            pathlib.Path("ticks").open("a").write(".")
            time.sleep(0.01)
        pathlib.Path("ticks").unlink(missing_ok=True)
        y = torch.empty_like(x)""",
)


class Arena(HostArena):
    """Host memory; timed inputs are none."""

    inputs = None


class HostBench(Bench):
    """A bench whose device is this machine."""

    has_all_tools = False
    stopwatch = None

    def __init__(
        self,
        server: ForkServer,
        capacity: int,
        num_kept: int,
        part_bytes: int = 1 << 28,
        pace: Pace | None = None,
        larger: Sequence[Shares] = (),
        alone: Sequence[Alone] = (Alone(Shares(1, 1, 1 << 28), Shares(1, 0, 1 << 28)),),
    ) -> None:
        num_ahead = pace.contexts_ahead if pace is not None and capacity > 1 else 0
        shares = Shares(capacity, num_kept, part_bytes, num_ahead=num_ahead)
        super().__init__(server, shares, "h100", alone=alone, pace=pace, larger=larger)
        self.given: list[Shares] = []

    def new_arena(self, inputs: Any, shares: Shares, *, silent: bool = False, is_runners: bool = False) -> Arena:
        self.given.append(shares)
        return Arena.create(1 << 30)

    def extend(self, arena: Any, inputs: Any) -> tuple[list[int], list[int]]:
        raise AssertionError("everybody has it from the beginning")

    def close(self) -> None:
        if self.blanks is not None:
            self.blanks.close()
        self._trials.close()
        self._endings.close()
        self.runners.close()


class Inputs:
    """Stand for those of timed calls."""

    def __init__(self) -> None:
        self.num_bases = 3

    @property
    def can_refresh(self) -> bool:
        return self.num_bases > 0

    def forget_bases(self, num_left: int) -> None:
        self.num_bases = num_left


class Windows:
    """Stands for the clock: in each window it looks whether a process of another verdict goes on ticking."""

    def __init__(self) -> None:
        self.num, self.num_ticking, self.num_moved = 0, 0, 0
        self.num_doubtful = 0
        """Series, of the first ones, that make calls look batched."""
        self.num_scattered = 0
        """Series, of the first ones, whose times scatter."""
        self.is_host_slow = False
        """Whether launches may bind what is timed, on cores that were slow: unless kernels take `BUSY_US` of a call."""
        self.is_hopeless = False
        """Whether few windows were enough, for being so slow."""
        self.call_us = 60.0
        self.layout = "dense"
        """Of the reference's output."""
        self.drawn: list[list[bool]] = []
        """Which calls were placebos, verdict by verdict."""
        self.doubtful: Settled | None = None
        """The reference's figure, if nobody has seen it before."""
        self.credited: list[Settled] = []
        """What candidates were held against, once it was confirmed."""
        self.everybody: list[Session] = []
        self.profile = Profile()

    def draw(self, match: Any, *_: Any, **__: Any) -> list[Any]:
        match.prepare("timed")
        return [match.reference.draw("get_inputs", 1)]

    def prepare(self, match: Any, *_: Any) -> Any:
        quick = SimpleNamespace(windows=[Window(8, 8 * self.call_us), Window(1, self.call_us)])
        both = {"contestant": quick, "reference": quick}
        match.result = SimpleNamespace(fitted={}, series=both, is_hopeless=self.is_hopeless)
        match.reference_changes_inputs, match.inputs = False, Inputs()
        match.layouts, match.outputs, match.strides = ["dense"], [self.layout], [(1,)]
        match.doubtful, match.arguments = self.doubtful, SimpleNamespace(of=lambda _: [])
        return match

    post_twin = staticmethod(preparation.post_twin)

    def add_twin(self, _: Any, twin: Any) -> None:
        with contextlib.suppress(Ruling):  # One that ticks in its twin, too, does so for ever.
            twin.collect_call(5.0)

    def run(self, bench: Any, match: Any, *_: Any) -> None:
        self.num += 1
        mine = {match.reference.hosted.session, match.contestant.hosted.session}
        others = [session for session in self.everybody if session not in mine and session.ended is None]
        before = [ticks(session) for session in others]
        time.sleep(0.1)
        self.num_ticking += any(before)
        self.num_moved += before != [ticks(session) for session in others]

    def play(self, _: Any, __: Any, match: Any, ___: Any, ____: Any, drawn: list[bool]) -> list[bool]:
        """Calls of the instance that was timed, silenced or not, each on its own."""
        self.drawn.append(drawn)
        right: list[bool] = []
        for is_placebo in drawn:
            inputs, seed = match.reference.draw("get_inputs", secret_seed()), secret_seed()
            expected = match.reference.expect("timed", inputs, match.conduct.variants, seed)
            node = match.contestant.hosted.give(inputs)
            answer = match.contestant.call("timed", node, seed, silenced=is_placebo)
            right.append(is_right(answer, expected, match.conduct.reduction_length))
        return right

    def doubt(self, *_: Any) -> str:
        return "its calls looked batched" if self.num <= self.num_doubtful else self.scatter()

    def scatter(self, *_: Any) -> str:
        return "the contestant's times scattered" if self.num <= self.num_scattered else ""

    def slow_launches(self, *at: Any) -> str:
        device_us = at[4] if len(at) > 4 else None
        is_bound = device_us is None or device_us < BUSY_US
        return "the host's cores were slow" if self.is_host_slow and is_bound else ""

    def finish(self, *at: Any) -> None:
        """There is no clock; that something was found, though."""
        at[3].full_fit = SimpleNamespace()

    def credit(self, _: Any, __: Any, settled: Settled) -> None:
        self.credited.append(settled)

    def is_slowed(self, *_: Any) -> bool:
        return False


TWIN = replace(protocol("quick"), twin_share=1.0)
IN_PLACE = replace(protocol("quick"), twin_share=0.0)
BUSY_US = 40.0


class Profile:
    """Stands for the profile: what it says, and how it was taken."""

    Rows = list

    def __init__(self) -> None:
        self.rows: list[Any] | None = []
        """What is found while others may use the device."""
        self.is_plausible = True
        self.num_beside, self.num_in_windows = 0, 0

    def take(self, *_: Any) -> list[Any]:
        self.num_in_windows += 1
        return []

    def take_beside(self, *_: Any) -> list[Any] | None:
        self.num_beside += 1
        return self.rows

    def device_us(self, rows: list[Any]) -> float:
        return sum(row["device_us"] for row in rows)

    def fits_the_clock(self, *_: Any) -> bool:
        return self.is_plausible

    def fill(self, _: Any, findings: Findings) -> None:
        findings.kernels = (KernelTime(name="swish", device_ms=0.1, num_launches=1, own=True),)


def ticks(session: Session) -> int:
    """How often a process that ticks has ticked."""
    try:
        return (session._scratch / "home" / "ticks").stat().st_size
    except FileNotFoundError:
        return 0


def judge(
    bench: Bench,
    source: str,
    folder: Path,
    settings: Protocol | None = None,
    problem: Problem = PROBLEM,
    auditor: Auditor | None = None,
) -> Findings | Ruling:
    candidate = Candidate(source=source)
    findings = Findings(problem, candidate, settings or TWIN, "cuda:0")
    try:
        cuda.judge_on_cuda(bench, auditor or Auditor(folder), language_of(candidate), findings)
    except Ruling as ruling:
        return ruling
    return findings


def passed(verdict: Findings | Ruling) -> Findings:
    assert isinstance(verdict, Findings), verdict
    return verdict


def refused(verdict: Findings | Ruling) -> Ruling:
    assert isinstance(verdict, Ruling)
    return verdict


def idle(bench: Bench) -> list[Reference]:
    return [reference for _, reference, _ in bench.runners._idle]


LATER_WRONG = HONEST.replace("return y", "self.calls = getattr(self, 'calls', 0) + 1; return y + (self.calls > 1)")
"""Right in the first call of an instance only."""


BUILT = (
    """
from torch.utils.cpp_extension import load_inline

extension = load_inline("quick", r'''
#include <Python.h>
static PyObject* answer(PyObject*, PyObject*) { return PyLong_FromLong(1); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "quick", "", -1, methods};
PyMODINIT_FUNC PyInit_quick() { return PyModule_Create(&module); }
''', no_implicit_headers=True)
open(extension.__file__, "r+b").write(b"a decoy")
"""
    + KERNEL
    + CALL.replace("return y", "return y * extension.answer()")
)
"""An extension that both sides need, and whose library each spoils once it is loaded."""


def is_stopped(session: Session) -> bool:
    """Whether it does not answer before it is thawed; afterwards it is as it was."""
    session.post("release", start=0, stop=0)
    is_silent = not session._door.has_frame(0.3)
    session.thaw()
    session.collect(30.0)
    session.freeze()
    return is_silent


class AlwaysClean:
    def is_clean(self) -> bool:
        return True

    def becomes_clean(self, _: float) -> bool:
        return True

    def was_clean(self, *_: object) -> bool:
        return True
