"""Judging on a real GPU: rounds, time, profile and cause, each in the process that it belongs to.

Three hosted processes take part. The reference runner and the contestant play the rounds and are timed in turns; the
*silent twin* is a second contestant in which the candidate's own kernels are no-ops from birth. It shows whether they
cause the answer, and how much of the time they can account for at most.
"""

from __future__ import annotations

import contextlib
import random
import threading
from pathlib import Path

import torch

from kerneldojo.devices.cuda.arena import CudaArena
from kerneldojo.devices.cuda.clock import Device as Clock
from kerneldojo.devices.cuda.memory import SharedRegion
from kerneldojo.devices.cuda.window import Stopwatch
from kerneldojo.judging import profile, timing
from kerneldojo.judging.audits import Auditor
from kerneldojo.judging.cause import check_cause, no_own_kernel
from kerneldojo.judging.contestant import Contestant
from kerneldojo.judging.ends import HostedEnd
from kerneldojo.judging.processes import ForkServer, Session
from kerneldojo.judging.protocol import Protocol
from kerneldojo.judging.reference import Reference
from kerneldojo.judging.rounds import Match
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.surroundings import request
from kerneldojo.judging.verdict import Findings
from kerneldojo.languages import Language
from kerneldojo.schema import Candidate, Problem

REFERENCE_SECONDS = 600.0
SHARED_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")


class CudaBench:
    """One GPU as the judge holds it: a context, a stopwatch, and a fork server for what runs there.

    Args:
        index: CUDA device.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.lock = threading.Lock()
        """One verdict at a time: a timing window has the device to itself."""
        properties = torch.cuda.get_device_properties(index)
        self.name = properties.name
        uuid = f"GPU-{properties.uuid}"
        self.server = ForkServer("cuda", {"CUDA_VISIBLE_DEVICES": uuid})
        self.clock = Clock(uuid)
        self._total_bytes = int(properties.total_memory)
        self._stopwatch: Stopwatch | None = None

    @property
    def stopwatch(self) -> Stopwatch:
        """The judge's clock on this device; its scratch memory is allocated on first use."""
        if self._stopwatch is None:
            torch.cuda.set_device(self.index)
            self._stopwatch = Stopwatch(self.index)
        return self._stopwatch

    @property
    def exchange_bytes(self) -> int:
        """Memory for arguments and packed results of one hosted process."""
        return self._total_bytes // 16

    @property
    def heap_bytes(self) -> int:
        """Memory for all tensors of one hosted process."""
        return self._total_bytes // 8

    def inputs(self) -> SharedRegion:
        """Memory for the inputs of timed calls, which all three processes map."""
        return SharedRegion.create(self._total_bytes // 16, self.index)

    def reference(self, problem: Problem, protocol: Protocol, inputs: SharedRegion | None = None) -> Reference:
        """A reference runner, not yet loaded."""
        return Reference(self._session(protocol, inputs, silent=False), problem, REFERENCE_SECONDS)

    def contestant(
        self, candidate: Candidate, protocol: Protocol, inputs: SharedRegion, *, silent: bool = False
    ) -> Contestant:
        """A fresh contestant; nothing of the candidate has run in it yet."""
        return Contestant(self._session(protocol, inputs, silent=silent), candidate, protocol.timeout)

    def _session(self, protocol: Protocol, inputs: SharedRegion | None, *, silent: bool) -> Session:
        self.stopwatch  # noqa: B018 - makes the context current, in which memory is mapped
        arena = CudaArena.create(self.exchange_bytes, self.heap_bytes, device=self.index, inputs=inputs, silent=silent)
        return Session(self.server, arena, request(protocol, f"cuda:{self.index}", device_nodes()))

    def close(self) -> None:
        """End the fork server and all that hangs on it."""
        self.server.close()


def device_nodes() -> list[str]:
    """The driver's nodes; CUDA_VISIBLE_DEVICES keeps the driver to one GPU."""
    numbered = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
    return [f"/dev/{name}" for name in (*SHARED_NODES, *numbered) if Path("/dev", name).exists()]


def judge_on_cuda(bench: CudaBench, auditor: Auditor, language: Language, findings: Findings) -> None:
    """Fill in `findings`; raises `Ruling` where the candidate does not pass."""
    protocol, problem, candidate = findings.protocol, findings.problem, findings.candidate
    findings.device = f"cuda:{bench.index} ({bench.name})"
    build_seconds = max(protocol.load_timeout, language.build_seconds)
    with bench.lock, contextlib.ExitStack() as stack:
        with findings.stage("start"):
            bench.server.start()
            inputs = bench.inputs()
            stack.callback(inputs.close)
            # All three start at once: most of that time is the driver making contexts.
            reference = bench.reference(problem, protocol, inputs)
            stack.callback(reference.hosted.session.close)
            contestant = bench.contestant(candidate, protocol, inputs)
            stack.callback(contestant.hosted.session.close)
            twin = bench.contestant(candidate, protocol, inputs, silent=True)
            stack.callback(twin.hosted.session.close)
            reference.load()
        with findings.stage("audit"):
            conduct = auditor.conduct(findings, reference, bench.heap_bytes)
        with findings.stage("build"):
            contestant.post_load()
            twin.post_load()
            contestant.collect_load(build_seconds)
            contestant.hosted.session.wait_started()
            findings.isolation = contestant.hosted.session.measures
        match = Match(reference, contestant, conduct)
        _play(match, findings)
        with findings.stage("timing"):
            twin_is_well = _collect(twin, build_seconds)
            timing.measure(bench, match, twin if twin_is_well else None, inputs, findings)
        with findings.stage("profile"):
            profile.measure(match, findings)
        with findings.stage("cause"):
            if not any(kernel.own for kernel in findings.kernels) and findings.kernels:
                raise no_own_kernel("the profiled calls")
            if twin_is_well and twin.hosted.session.ended is None:
                check_cause(Match(reference, twin, conduct), protocol.cause_timeout)


def _play(match: Match, findings: Findings) -> None:
    protocol = findings.protocol
    repeats = set(random.SystemRandom().sample(range(protocol.num_rounds), protocol.num_repeats))
    try:
        with findings.stage("correctness"):
            for number in range(protocol.num_rounds):
                match.play_round(number, repeat=number in repeats)
            for distribution in match.conduct.probing:
                match.probe(distribution)
    finally:
        findings.max_error = match.seen.max_error
        findings.precision_class = match.seen.precision_class
    findings.outputs_matched = True


def _collect(twin: Contestant, timeout: float) -> bool:
    """Whether the silent twin got as far as having loaded; one that breaks without its kernels depends on them."""
    try:
        twin.collect_load(timeout)
    except (Ruling, HostedEnd):
        return False
    return True
