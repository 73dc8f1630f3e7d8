"""Judging on a real GPU: rounds, time, profile and cause, each in the process that it belongs to.

Three hosted processes take part. The reference runner and the contestant play the rounds and are timed in turns; the
*silent twin* is a second contestant in which the candidate's own kernels are no-ops from birth. It shows whether they
cause the answer, and how much of the time they can account for at most.
"""

from __future__ import annotations

import contextlib
import random
import select
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch

from kerneldojo.devices.cuda.arena import CudaArena, enter_context
from kerneldojo.devices.cuda.clock import Device as Clock
from kerneldojo.devices.cuda.memory import SharedRegion
from kerneldojo.devices.cuda.window import Stopwatch
from kerneldojo.judging import profile, timing
from kerneldojo.judging.audits import Auditor
from kerneldojo.judging.cause import check_cause, no_own_kernel
from kerneldojo.judging.contestant import Contestant
from kerneldojo.judging.cores import Cores
from kerneldojo.judging.ends import HostedEnd, Infrastructure
from kerneldojo.judging.gate import Canary, Gate, Guest
from kerneldojo.judging.processes import ForkServer, Session
from kerneldojo.judging.protocol import Protocol
from kerneldojo.judging.reference import Reference
from kerneldojo.judging.reference_times import ReferenceTimes
from kerneldojo.judging.rounds import Match
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.surroundings import request
from kerneldojo.judging.verdict import Findings
from kerneldojo.languages import Language
from kerneldojo.schema import Candidate, Problem

REFERENCE_SECONDS = 600.0
CONTEXT_BYTES = 640 << 20
"""Device memory that one process' context takes, with what torch loads into it (an upper estimate)."""
NUM_WINDOWS = 3
"""How often timing is tried when canaries say that something else used the device."""
SHARED_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")


class CudaBench:
    """One GPU as the judge holds it: a context, a stopwatch, and a fork server for what runs there.

    Args:
        index: CUDA device.
        num_verdicts: verdicts at once, fewer where its memory does not allow so many; they share its memory evenly.
        reuse_reference_times: whether a problem's reference time serves several verdicts.
        cores: those that this device has to itself; some are reserved for windows when several verdicts run at once.
    """

    def __init__(
        self,
        index: int,
        *,
        num_verdicts: int = 1,
        reuse_reference_times: bool = False,
        cores: Collection[int] = (),
    ) -> None:
        self.index = index
        properties = torch.cuda.get_device_properties(index)
        self.name = properties.name
        uuid = f"GPU-{properties.uuid}"
        self.server = ForkServer("cuda", {"CUDA_VISIBLE_DEVICES": uuid})
        self.clock = Clock(uuid)
        self._total_bytes = int(properties.total_memory)
        self.gate = Gate(affordable(num_verdicts, self._total_bytes), Cores.of(cores))
        """A timing window has the device to itself."""
        self.reference_times = ReferenceTimes() if reuse_reference_times else None
        self._stopwatch: Stopwatch | None = None
        self._canary = Canary(lambda: self.stopwatch.flush())

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
        return self._total_bytes // (16 * self.gate.capacity)

    @property
    def heap_bytes(self) -> int:
        """Memory for all tensors of one hosted process."""
        return self._total_bytes // (8 * self.gate.capacity)

    def inputs(self) -> SharedRegion:
        """Memory for the inputs of timed calls, which all three processes map."""
        return SharedRegion.create(self._total_bytes // (16 * self.gate.capacity), self.index)

    def reference(
        self, problem: Problem, protocol: Protocol, guest: Guest, inputs: SharedRegion | None = None
    ) -> Reference:
        """A reference runner, not yet loaded."""
        reference = Reference(self._session(protocol, guest, inputs, silent=False), problem, REFERENCE_SECONDS)
        guest.budgets.append(reference.hosted)
        return reference

    def contestant(
        self, candidate: Candidate, protocol: Protocol, guest: Guest, inputs: SharedRegion, *, silent: bool = False
    ) -> Contestant:
        """A fresh contestant; nothing of the candidate has run in it yet."""
        contestant = Contestant(self._session(protocol, guest, inputs, silent=silent), candidate, protocol.timeout)
        guest.budgets.append(contestant.hosted)
        return contestant

    def _session(self, protocol: Protocol, guest: Guest, inputs: SharedRegion | None, *, silent: bool) -> Session:
        self.stopwatch  # noqa: B018 - its memory is there before anything is timed
        enter_context(self.index)  # In this thread, too: memory is mapped into the current context.
        arena = CudaArena.create(self.exchange_bytes, self.heap_bytes, device=self.index, inputs=inputs, silent=silent)
        wanted = request(protocol, f"cuda:{self.index}", device_nodes())
        if self.gate.capacity == 1:
            return Session(self.server, arena, wanted)
        return GatedSession(self.server, arena, wanted, guest)

    def measure_alone(self, guest: Guest, action: Callable[[], None]) -> None:
        """Run `action` with the device to itself; again if a canary before or after says that it had not.

        Raises:
            Infrastructure: the device was not idle in any of the windows.
        """
        if self.gate.capacity == 1:  # Nobody else of ours is there, and the trials see strangers by themselves.
            action()
            return
        for _ in range(NUM_WINDOWS):
            with guest.window():
                if not self._canary.is_clean():
                    continue
                action()
                if self._canary.is_clean():
                    return
        raise Infrastructure(f"cuda:{self.index} was not idle in {NUM_WINDOWS} windows")

    def close(self) -> None:
        """End the fork server and all that hangs on it."""
        self.server.close()


class GatedSession(Session):
    """A session whose process may be frozen for another verdict's sake, at no cost to its deadlines."""

    def __init__(self, server: ForkServer, arena: Any, request: dict[str, Any], guest: Guest) -> None:
        super().__init__(server, arena, request)
        self._guest = guest
        guest.sessions.append(self)

    def collect(self, timeout: float) -> dict[str, Any]:
        """See `Session.collect`."""
        return super().collect(self._guest.wait(self._hears, timeout))

    def _hears(self, seconds: float) -> bool:
        return bool(select.select([self._door], [], [], seconds)[0])


def affordable(num_verdicts: int, total_bytes: int) -> int:
    """How many verdicts at once a device's memory allows: three contexts each, beside 10/16 of it that they share."""
    return max(1, min(num_verdicts, total_bytes * 5 // 16 // (3 * CONTEXT_BYTES)))


def device_nodes() -> list[str]:
    """The driver's nodes; CUDA_VISIBLE_DEVICES keeps the driver to one GPU."""
    numbered = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
    return [f"/dev/{name}" for name in (*SHARED_NODES, *numbered) if Path("/dev", name).exists()]


def judge_on_cuda(bench: CudaBench, auditor: Auditor, language: Language, findings: Findings) -> None:
    """Fill in `findings`; raises `Ruling` where the candidate does not pass."""
    protocol, problem, candidate = findings.protocol, findings.problem, findings.candidate
    findings.device = f"cuda:{bench.index} ({bench.name})"
    build_seconds = max(protocol.load_timeout, language.build_seconds)
    with bench.gate.admit() as guest, contextlib.ExitStack() as stack:
        with findings.stage("start"):
            bench.server.start()
            enter_context(bench.index)
            inputs = bench.inputs()
            stack.callback(inputs.close)
            # All three start at once: most of that time is the driver making contexts. Each makes its own when its
            # first command is done, or begins; so a source that is not Python costs none. The contestant comes first:
            # it has read the source when the reference runner, locked in last, could begin.
            contestant = bench.contestant(candidate, protocol, guest, inputs)
            stack.callback(contestant.hosted.session.close)
            contestant.post_parse()
            twin = bench.contestant(candidate, protocol, guest, inputs, silent=True)
            stack.callback(twin.hosted.session.close)
            twin.post_parse()
            reference = bench.reference(problem, protocol, guest, inputs)
            stack.callback(reference.hosted.session.close)
            contestant.collect_parse(build_seconds)
            twin.collect_parse(build_seconds)
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
        _play(match, findings, guest)
        with findings.stage("timing"):
            twin_is_well = _collect(twin, build_seconds)
            timed_twin = twin if twin_is_well else None
            bench.measure_alone(guest, lambda: timing.measure(bench, match, timed_twin, inputs, findings))
        with findings.stage("profile"), guest.window():
            profile.measure(match, findings)
        with findings.stage("cause"):
            if not any(kernel.own for kernel in findings.kernels) and findings.kernels:
                raise no_own_kernel("the profiled calls")
            if twin_is_well and twin.hosted.session.ended is None:
                check_cause(Match(reference, twin, conduct), protocol.cause_timeout)


def _play(match: Match, findings: Findings, guest: Guest) -> None:
    protocol = findings.protocol
    repeats = set(random.SystemRandom().sample(range(protocol.num_rounds), protocol.num_repeats))
    try:
        with findings.stage("correctness"):
            for number in range(protocol.num_rounds):
                # An autotuner chooses at the first call, by times: it needs the device to itself.
                alone = number == 0 and "autotune" in findings.candidate.source
                with guest.window() if alone else contextlib.nullcontext():
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
