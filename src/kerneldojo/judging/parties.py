"""The processes of a verdict on a GPU: how contestant and silent twin come to be, and how all of them end.

What a GPU has least of is contexts. With several verdicts at once they are made ahead (`judging.blanks`): a source is
tried in a process without the device, and then contestant and twin are processes that have it open already. Else each
context is made as late as it can be; either way a source that does not import costs none. Where there is to be a twin
anyway it opens its device, or is taken, once a round is passed (`judging.twin`); a candidate that brought no kernel of
its own needs none, and most others are silenced where they were timed (`judging.silence`).

In languages that are slow to build, contestant and twin have what they compile in common and nothing else: a fourth
process, the *workshop*, builds for both (`judging.workshop`), and is gone before anything is timed, or stands still.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Generator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kerneldojo.devices.cuda.driver import CudaError
from kerneldojo.devices.cuda.memory import is_out_of_memory
from kerneldojo.judging import silence
from kerneldojo.judging.audits import Auditor
from kerneldojo.judging.blanks import OPEN_SECONDS
from kerneldojo.judging.contestant import Contestant
from kerneldojo.judging.ends import HostedEnd, Infrastructure, frameless
from kerneldojo.judging.gated_bench import Bench
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.processes import Session
from kerneldojo.judging.reference import Reference
from kerneldojo.judging.ruling import Ruling, of_candidate
from kerneldojo.judging.shares import CONTEXT_BYTES
from kerneldojo.judging.twin import Twin
from kerneldojo.judging.verdict import Findings
from kerneldojo.judging.workshop import Workshop, build_seconds, is_slow_to_build
from kerneldojo.languages import Language
from kerneldojo.schema import Status

BRINGS_CUDA = ("cpp_extension", "nvrtc", "compile_kernel", "cupy", "RawKernel", "numba", "cuda.core", "cuModule")
"""Words of sources that compile or load CUDA C++ by themselves. Who hides them has a smaller stack, and that alone."""
MOST_BESIDE_BYTES = 1 << 30
"""Device memory that a candidate's processes may have beside contexts and arenas without being blamed for a lack."""


def may_compile_cuda(source: str) -> bool:
    """Whether a source may compile or load CUDA C++ by itself."""
    return any(word in source for word in BRINGS_CUDA)


@dataclass
class Parties:
    """Of one verdict.

    Args:
        bench, guest: where, and whose.
        auditor: forgets what a hoarding candidate made it believe.
        language, findings: of the candidate.
        workshop: builds for contestant and twin, where that is slow.
    """

    bench: Bench
    guest: Guest
    auditor: Auditor
    language: Language
    findings: Findings
    workshop: Workshop
    sessions: list[Session] = field(default_factory=list[Session])
    """Contestant, twin and workshop, as they come."""

    def come(self, reference: Reference) -> tuple[Contestant, Twin]:
        """The contestant with its source loaded and its device open, and a twin that may set out.

        Raises:
            Ruling: the source does not import.
            Infrastructure: the device is not to be had.
        """
        inputs = reference.hosted.arena.inputs
        if self.is_ahead:
            contestant = self._taken(reference, inputs)
            return contestant, Twin(
                lambda is_waiting: self._opened(inputs, silent=True, is_waiting=is_waiting),
                self._build_seconds,
                lambda twin: self._opening(twin, inputs),
                "open",
            )
        contestant, early = self._made(inputs)
        with self.findings.stage("contexts"):
            reference.post_open()
            with self._opening(contestant, inputs):
                contestant.post_open()
                reference.prepare()
                contestant.collect_open(OPEN_SECONDS)
        is_wanted = early is None and not self.comes_late
        silent = early or (self._silent(inputs) if is_wanted else None)  # Locked in meanwhile, and no more than that.
        return contestant, Twin(
            lambda _: silent or self._silent(inputs),
            self._build_seconds,
            lambda twin: self._opening(twin, inputs),
            "loading" if early is not None else "enclosed",
        )

    @property
    def is_ahead(self) -> bool:
        """Whether its processes are such as have opened the device already.

        Not in languages that are slow to build, where importing takes far longer than a context, and must not be done
        once more to see whether there is anything to build. Nor where CUDA C++ may be compiled in another way: what is
        opened ahead is lean, and functions that call themselves have less of a stack in it.
        """
        return self.bench.blanks is not None and self.guest.room == 0 and not self.brings_cuda

    @property
    def brings_cuda(self) -> bool:
        """Whether CUDA C++ may be compiled in it. Its kernels are silenced as its libraries are loaded, if at all."""
        return self._is_slow_to_build or may_compile_cuda(self.findings.candidate.source)

    @cached_property
    def needs_twin(self) -> bool:
        """Whether own kernels are not silenced where they were timed, but in a twin: see `silence`."""
        if self.brings_cuda or silence.may_watch(self.findings.candidate.source):
            return True
        return random.SystemRandom().random() < self.findings.protocol.twin_share

    @property
    def comes_late(self) -> bool:
        """Whether the twin sets out only when it is asked, if it is: it is not timed, or has no room beside others."""
        return not (self.needs_twin and self._has_room_for_twin)

    @property
    def _has_room_for_twin(self) -> bool:
        return self.bench.room(self.guest).has_twin_beside

    def _taken(self, reference: Reference, inputs: Any) -> Contestant:
        """A contestant that had its device open."""
        findings, protocol = self.findings, self.findings.protocol
        with findings.stage("contexts"):
            reference.post_open()
            contestant = self._opened(inputs)
            assert contestant is not None
            reference.prepare()
            contestant.collect_furnish(OPEN_SECONDS)
        with findings.stage("build"):
            contestant.load(protocol.load_timeout)
            findings.isolation = contestant.hosted.session.measures
            findings.note_borrowed(contestant.borrowed)
        return contestant

    def _opened(self, inputs: Any, *, silent: bool = False, is_waiting: bool = True) -> Contestant | None:
        """One on its way to being furnished, or the twin, which is not."""
        findings = self.findings
        party = self.bench.opened(
            findings.submission, findings.protocol, self.guest, inputs, silent=silent, is_waiting=is_waiting
        )
        if party is not None:
            self.sessions.append(party.hosted.session)
            if not silent:
                party.post_furnish()
        return party

    def _made(self, inputs: Any) -> tuple[Contestant, Contestant | None]:
        """A contestant with its source loaded and no context yet, and its twin where that builds beside it."""
        bench, findings, protocol = self.bench, self.findings, self.findings.protocol
        with findings.stage("start"):
            contestant = bench.contestant(findings.submission, protocol, self.guest, inputs, self._line())
            self.sessions.append(contestant.hosted.session)
            contestant.post_parse()
            contestant.collect_parse(protocol.load_timeout)
            contestant.furnish(protocol.load_timeout)
        with findings.stage("build"):
            if not self.workshop.is_open:
                self.sessions += self.workshop.open(bench, protocol, self.guest)
            contestant.post_load()
            early = self._silent(inputs) if self._is_slow_to_build and self._has_room_for_twin else None
            if early is not None:
                early.furnish(self._build_seconds)
                early.post_load()
            try:
                contestant.collect_load(self._build_seconds)
            except Ruling:
                self.workshop.check()
                raise
            contestant.hosted.session.wait_started()
            findings.isolation = contestant.hosted.session.measures
            findings.note_borrowed(contestant.borrowed)
        return contestant, early

    @property
    def _build_seconds(self) -> float:
        return build_seconds(self.language, self.findings.protocol)

    @property
    def _is_slow_to_build(self) -> bool:
        """Whether it builds in a workshop; then the twin loads beside the contestant, if there is room, and neither has
        a context by then."""
        return is_slow_to_build(self.language, self.findings.protocol)

    def _line(self) -> socket.socket | None:
        """A line to the workshop, where it is worth having one."""
        return self.workshop.line() if self._is_slow_to_build else None

    @contextlib.contextmanager
    def ending(self) -> Generator[None]:
        """Processes, all ended at the end: see `Bench.end`."""
        try:
            yield
        except (Ruling, Infrastructure, RuntimeError) as fault:
            if _may_lack_memory(fault) and not self.guest.had_company:
                self._check_hoard(fault)
            raise
        finally:
            with self.findings.stage("end"):
                try:
                    self.bench.end(self.guest, self.sessions)
                finally:
                    self.bench.tidy()

    def _check_hoard(self, fault: Exception) -> None:
        """See whether what others lacked was in the candidate's hands: beyond its arena the driver gives what there is.

        Raises:
            Ruling: it was. As a fault of ours or of the problem's it would not be scored.
        """
        before = self.bench.free_bytes()
        for session in self.sessions:
            session.order_end()
        for session in self.sessions:
            session.kill()
        taken = self.bench.free_bytes() - before - len(self.sessions) * CONTEXT_BYTES
        if taken > MOST_BESIDE_BYTES:
            frameless(fault)
            self.bench.large.pop(self.findings.problem.hash, None)  # Nothing of this was the problem's size.
            self.auditor.forget_lacks(self.findings.problem)
            reason = f"it took {taken / (1 << 30):.1f} GiB of device memory beside what it was given"
            raise Ruling(Status.OUT_OF_MEMORY, reason, lacks="memory") from None

    def _silent(self, inputs: Any) -> Contestant:
        """The silent twin's process, on its way to being locked in."""
        findings = self.findings
        twin = self.bench.contestant(
            findings.submission, findings.protocol, self.guest, inputs, self._line(), silent=True
        )
        self.sessions.append(twin.hosted.session)
        return twin

    @contextlib.contextmanager
    def _opening(self, party: Contestant, inputs: Any) -> Generator[None]:
        """What ends a contestant while its context is made. It has imported its source, so it may be its own doing.

        Raises:
            Infrastructure: a process with nothing of the candidate's in it cannot make a context now either.
            Ruling: it can.
        """
        try:
            yield
        except HostedEnd as end:
            frameless(end)
            party.hosted.session.close()  # Its memory, too: a blank one gets as much.
            if not self.bench.can_open(self.findings.protocol, self.guest, inputs):
                raise Infrastructure(f"{self.bench.device} makes no context: {end}") from None
            raise of_candidate(end, "import", self.findings.candidate.source) from None


def _may_lack_memory(fault: Exception) -> bool:
    """Whether a fault that is not the candidate's may come from a device without any memory left."""
    if isinstance(fault, Ruling):
        return fault.status is Status.INVALID_PROBLEM and fault.lacks == "memory"
    is_drivers = isinstance(fault, CudaError) and fault.name == "CUDA_ERROR_OUT_OF_MEMORY"
    return isinstance(fault, Infrastructure) or is_out_of_memory(fault) or is_drivers
