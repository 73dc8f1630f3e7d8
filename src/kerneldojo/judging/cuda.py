"""Judging on a real GPU: its processes and the rounds. What is measured of who passes them is in `measurement`.

Three hosted processes take part. The reference runner and the contestant play the rounds and are timed in turns; the
*silent twin* is a second contestant in which the candidate's own kernels are no-ops from birth. It shows whether they
cause the answer, and how much of the time they can account for at most.

What a GPU has least of is contexts, so each is made as late as it can be. A source that does not import costs none. The
runner is one that has served other candidates, if there is one. The twin is locked in early and opens its device only
once a round is passed (`judging.twin`); a candidate that brought no kernel of its own needs none.

In languages that are slow to build, contestant and twin have what they compile in common and nothing else: a fourth
process, the *workshop*, builds for both (`judging.workshop`), and is gone before anything is timed.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from kerneldojo.devices.cuda.driver import CudaError
from kerneldojo.devices.cuda.launchers import checked
from kerneldojo.devices.cuda.memory import is_out_of_memory
from kerneldojo.judging.audits import Auditor
from kerneldojo.judging.blanks import OPEN_SECONDS
from kerneldojo.judging.contestant import Contestant
from kerneldojo.judging.ends import HostedEnd, Infrastructure
from kerneldojo.judging.gate import Guest
from kerneldojo.judging.gated_bench import Bench
from kerneldojo.judging.measurement import Measurement
from kerneldojo.judging.processes import Session
from kerneldojo.judging.protocol import Protocol
from kerneldojo.judging.reference import Reference
from kerneldojo.judging.rounds import Match
from kerneldojo.judging.ruling import Ruling, of_candidate
from kerneldojo.judging.shares import CONTEXT_BYTES
from kerneldojo.judging.turns import Turn
from kerneldojo.judging.twin import Twin
from kerneldojo.judging.verdict import Findings
from kerneldojo.judging.workshop import Workshop
from kerneldojo.languages import Language
from kerneldojo.problems.audit import AuditReport
from kerneldojo.schema import Problem, Status

MOST_BESIDE_BYTES = 1 << 30
"""Device memory that a candidate's processes may have beside contexts and arenas without being blamed for a lack."""


def judge_on_cuda(bench: Bench, auditor: Auditor, language: Language, findings: Findings) -> None:
    """Fill in `findings`; raises `Ruling` where the candidate does not pass."""
    findings.device = f"{bench.device} ({bench.name})"
    if findings.problem.hash not in bench.large and not _wants_more(bench, auditor, language, findings):
        return
    with bench.gate.admit(alone=True) as guest:
        try:
            with findings.stage("audit"):
                bench.server.start()
                audit_on_cuda(bench, auditor, findings.problem, findings.protocol, guest)
            _Verdict(bench, auditor, language, findings, guest).judge()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            reason = f"the problem is too large for {bench.device}: inputs and answers do not fit beside each other"
            raise Ruling(Status.INVALID_PROBLEM, reason, lacks="memory") from None


def audit_on_cuda(
    bench: Bench, auditor: Auditor, problem: Problem, protocol: Protocol, guest: Guest, *, fresh: bool = False
) -> AuditReport:
    """Audit a problem with a reference runner and nothing else: with more memory than in a verdict, if it is alone.

    What a problem may need is counted by what a verdict has, though.

    Raises:
        Ruling: its source does not import.
    """
    room = bench.auditing if guest.is_alone else None
    with bench.lent_reference(problem, protocol, guest, room) as reference:
        reference.post_open()
        reference.prepare()
        limit, may_be_cramped = bench.room(guest).heap_bytes, not bench.has_more(guest)
        return auditor.audit(problem, reference, protocol.precision, limit, may_be_cramped=may_be_cramped, fresh=fresh)


def _wants_more(bench: Bench, auditor: Auditor, language: Language, findings: Findings) -> bool:
    """Judge beside others; whether that came to nothing for want of memory, so that it is to be judged alone.

    Host memory is each one's own; of the device's, others had a part, and perhaps more than their part.
    """
    with bench.gate.admit() as guest:
        try:
            _Verdict(bench, auditor, language, findings, guest).judge()
            return False
        except Ruling as ruling:
            if ruling.lacks != "memory" or not (guest.had_company or bench.has_more(guest)):
                raise
            if ruling.status is Status.OUT_OF_MEMORY:
                findings.notes.append("ran out of device memory beside other candidates, and was judged again alone")
            else:
                bench.large.add(findings.problem.hash)
            return True
        except RuntimeError as error:  # It was the judge that had no room for what came back.
            if not is_out_of_memory(error) or not bench.has_more(guest):
                raise
            bench.large.add(findings.problem.hash)
            return True
        finally:
            if guest.had_company:  # Within the stages, not beside them.
                findings.stage_seconds["held"] = round(guest.seconds_held, 4)
                findings.stage_seconds["stopping"] = round(guest.seconds_stopping, 4)
                findings.stage_seconds["alone"] = round(guest.seconds_alone, 4)


def _may_lack_memory(fault: Exception) -> bool:
    """Whether a fault that is not the candidate's may come from a device without any memory left."""
    if isinstance(fault, Ruling):
        return fault.status is Status.INVALID_PROBLEM and fault.lacks == "memory"
    is_drivers = isinstance(fault, CudaError) and fault.name == "CUDA_ERROR_OUT_OF_MEMORY"
    return isinstance(fault, Infrastructure) or is_out_of_memory(fault) or is_drivers


@dataclass
class _Verdict:
    bench: Bench
    auditor: Auditor
    language: Language
    findings: Findings
    guest: Guest
    workshop: Workshop = field(default_factory=Workshop)
    turn: Turn | None = None
    """Its turn to have memory for timing, once it has asked for it."""

    def judge(self) -> None:
        bench, findings, guest, protocol = self.bench, self.findings, self.guest, self.findings.protocol
        with contextlib.ExitStack() as stack:
            stack.callback(self._end_turn)  # Last of all: its processes have that memory until they are dead.
            with findings.stage("start"):
                bench.server.start()
                bench.enter()
                if self._is_ahead:
                    self._try(stack)
                reference = stack.enter_context(bench.lent_reference(findings.problem, protocol, guest))
                inputs = reference.hosted.arena.inputs
                parties = stack.enter_context(self._parties())
            contestant, twin = self._contestant(reference, parties, inputs)
            with findings.stage("audit"):
                limit = bench.room(guest).heap_bytes
                conduct = self.auditor.conduct(findings, reference, limit, has_more=bench.has_more(guest))
            match = Match(reference, contestant, conduct)
            self._play(match, twin)
            if bench.timed is not None and not guest.is_alone:
                self.turn = bench.timed.ask()
            Measurement(bench, guest, findings, self.workshop, match, twin, self.turn).take()

    def _end_turn(self) -> None:
        if self.turn is not None:
            self.turn.give_back()

    def _contestant(self, reference: Reference, parties: list[Session], inputs: Any) -> tuple[Contestant, Twin]:
        """The contestant with its source loaded and its device open, and a twin that may set out."""
        if self._is_ahead:
            contestant = self._taken(reference, parties, inputs)
            return contestant, Twin(
                lambda is_waiting: self._opened(parties, inputs, silent=True, is_waiting=is_waiting),
                self._build_seconds,
                lambda twin: self._opening(twin, inputs),
                "open",
            )
        contestant, early = self._made(parties, inputs)
        with self.findings.stage("contexts"):
            reference.post_open()
            with self._opening(contestant, inputs):
                contestant.post_open()
                reference.prepare()
                contestant.collect_open(OPEN_SECONDS)
        silent = early or self._silent(parties, inputs)  # Locked in meanwhile, and no more than that.
        return contestant, Twin(
            lambda _: silent,
            self._build_seconds,
            lambda twin: self._opening(twin, inputs),
            "loading" if early is not None else "enclosed",
        )

    @property
    def _is_ahead(self) -> bool:
        """Whether its processes are such as have opened the device already.

        Not in languages that are slow to build, where importing takes far longer than a context, and must not be done
        once more to see whether there is anything to build.
        """
        is_slow = self._is_slow_to_build or "cpp_extension" in self.findings.candidate.source
        return self.bench.blanks is not None and not self.guest.is_alone and not is_slow

    def _try(self, stack: contextlib.ExitStack) -> None:
        """See whether the source imports, in a process without the device and before anything of it is taken.

        Args:
            stack: what is to be closed with the verdict.

        Raises:
            Ruling: it does not.
        """
        trial, session = self.bench.trial(self.findings.candidate, self.findings.protocol, self.guest)
        stack.callback(session.close)
        trial.post_parse()
        trial.collect_parse(self.findings.protocol.load_timeout)
        trial.post_load()
        trial.collect_trial(self.findings.protocol.load_timeout)
        session.order_end()
        session.part()  # Or it would be given a core of its own in this verdict's windows.

    def _taken(self, reference: Reference, parties: list[Session], inputs: Any) -> Contestant:
        """A contestant that had its device open."""
        findings, protocol = self.findings, self.findings.protocol
        with findings.stage("contexts"):
            reference.post_open()
            contestant = self._opened(parties, inputs)
            assert contestant is not None
            reference.prepare()
            contestant.collect_furnish(OPEN_SECONDS)
        with findings.stage("build"):
            contestant.load(protocol.load_timeout)
            findings.isolation = contestant.hosted.session.measures
        return contestant

    def _opened(
        self, parties: list[Session], inputs: Any, *, silent: bool = False, is_waiting: bool = True
    ) -> Contestant | None:
        """One on its way to being furnished, or the twin, which is not."""
        findings = self.findings
        party = self.bench.opened(
            findings.candidate, findings.protocol, self.guest, inputs, silent=silent, is_waiting=is_waiting
        )
        if party is not None:
            parties.append(party.hosted.session)
            if not silent:
                party.post_furnish()
        return party

    def _made(self, parties: list[Session], inputs: Any) -> tuple[Contestant, Contestant | None]:
        """A contestant with its source loaded and no context yet, and its twin where that builds beside it."""
        bench, findings, protocol = self.bench, self.findings, self.findings.protocol
        with findings.stage("start"):
            contestant = bench.contestant(findings.candidate, protocol, self.guest, inputs, self._line())
            parties.append(contestant.hosted.session)
            contestant.post_parse()
            contestant.collect_parse(protocol.load_timeout)
            contestant.furnish(protocol.load_timeout)
        with findings.stage("build"):
            parties += self.workshop.open(bench, protocol, self.guest)
            contestant.post_load()
            early = self._silent(parties, inputs) if self._is_slow_to_build else None
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
        return contestant, early

    @property
    def _build_seconds(self) -> float:
        return max(self.findings.protocol.load_timeout, self.language.build_seconds)

    @property
    def _is_slow_to_build(self) -> bool:
        """Whether the twin builds beside the contestant, rather than after the rounds; neither has a context then."""
        return self.language.build_seconds > self.findings.protocol.load_timeout

    def _line(self) -> socket.socket | None:
        """A line to the workshop, where it is worth having one: then two build the same at the same time."""
        return self.workshop.line() if self._is_slow_to_build else None

    @contextlib.contextmanager
    def _parties(self) -> Generator[list[Session]]:
        """Processes, all ended at the end: the order is given to all of them before any is waited for."""
        sessions: list[Session] = []
        try:
            yield sessions
        except (Ruling, Infrastructure, RuntimeError) as fault:
            if isinstance(fault, Ruling) and fault.status is Status.UNSUPPORTED_ON_DEVICE and self.bench.has_all_tools:
                raise Ruling(Status.RUNTIME_ERROR, fault.message) from None  # A claim, and nobody would score it.
            if _may_lack_memory(fault) and not self.guest.had_company:
                self._check_hoard(sessions)
            raise
        finally:
            self.workshop.abandon()
            with self.findings.stage("end"), contextlib.ExitStack() as stack:
                for session in sessions:
                    session.order_end()
                stack.callback(self.bench.tidy)
                if self.bench.blanks is not None:
                    stack.enter_context(self.guest.beside_windows(sessions))
                for session in sessions:
                    stack.callback(session.close)

    def _check_hoard(self, sessions: list[Session]) -> None:
        """See whether what others lacked was in the candidate's hands: beyond its arena the driver gives what there is.

        Raises:
            Ruling: it was. As a fault of ours or of the problem's it would not be scored.
        """
        before = self.bench.free_bytes()
        for session in sessions:
            session.order_end()
        for session in sessions:
            session.kill()
        taken = self.bench.free_bytes() - before - len(sessions) * CONTEXT_BYTES
        if taken > MOST_BESIDE_BYTES:
            self.bench.large.discard(self.findings.problem.hash)  # Nothing of this was the problem's size.
            self.auditor.forget_lacks(self.findings.problem)
            reason = f"it took {taken / (1 << 30):.1f} GiB of device memory beside what it was given"
            raise Ruling(Status.OUT_OF_MEMORY, reason, lacks="memory") from None

    def _silent(self, parties: list[Session], inputs: Any) -> Contestant:
        """The silent twin's process, on its way to being locked in."""
        findings = self.findings
        twin = self.bench.contestant(
            findings.candidate, findings.protocol, self.guest, inputs, self._line(), silent=True
        )
        parties.append(twin.hosted.session)
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
            party.hosted.session.close()  # Its memory, too: a blank one gets as much.
            if not self.bench.can_open(self.findings.protocol, self.guest, inputs):
                raise Infrastructure(f"{self.bench.device} makes no context: {end}") from None
            raise of_candidate(end, "import", self.findings.candidate.source) from None

    def _play(self, match: Match, twin: Twin) -> None:
        findings, protocol = self.findings, self.findings.protocol
        repeats = set(random.SystemRandom().sample(range(protocol.num_rounds), protocol.num_repeats))
        try:
            with findings.stage("correctness"):
                for number in range(protocol.num_rounds):
                    # An autotuner chooses at the first call, by times: it needs the device to itself.
                    alone = number == 0 and "autotune" in findings.candidate.source
                    with self.guest.window() if alone else contextlib.nullcontext():
                        match.play_round(number, repeat=number in repeats)
                    if match.seen.ran_own_kernel:
                        twin.advance()
                match.play_beyond(protocol.num_rounds)
                for distribution in match.conduct.probing:
                    match.probe(distribution)
        finally:
            findings.max_error = match.seen.max_error
            findings.precision_class = match.seen.precision_class
        findings.outputs_matched = True
        lacked = (checked(item.get("launcher")) for item in match.seen.specializations)
        self.bench.server.learn([types for types in lacked if types is not None])
