"""Judging on a real GPU: its processes and the rounds. What is measured of who passes them is in `measurement`.

Two hosted processes take part, or three. Reference runner and contestant play the rounds and are timed in turns. Then
the candidate's own kernels become no-ops, which shows whether they cause the answer, and how much of the time they can
account for at most: in the contestant itself, or in a *silent twin*, a second one in which they are no-ops from birth.
The twin is a context more, so it comes only for what cannot be silenced in place, where that proves nothing or may be
seen, and by lot (`silence`).
"""

from __future__ import annotations

import contextlib
import logging
import random
import re
import traceback
from collections.abc import Generator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kerneldojo.devices.cuda.launchers import checked
from kerneldojo.devices.cuda.memory import is_out_of_memory
from kerneldojo.judging.ahead import built_ahead
from kerneldojo.judging.audits import Auditor, refuse
from kerneldojo.judging.ends import frameless
from kerneldojo.judging.gated_bench import Bench
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.measurement import Measurement
from kerneldojo.judging.parties import Parties
from kerneldojo.judging.preparation import rehearse_twin
from kerneldojo.judging.protocol import Protocol
from kerneldojo.judging.rounds import Match
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.turns import Turn
from kerneldojo.judging.twin import Twin
from kerneldojo.judging.verdict import Findings
from kerneldojo.judging.workshop import Workshop
from kerneldojo.languages import Language
from kerneldojo.problems.audit import AuditReport
from kerneldojo.schema import Problem, Status

log = logging.getLogger(__name__)


def judge_on_cuda(bench: Bench, auditor: Auditor, language: Language, findings: Findings) -> None:
    """Fill in `findings`; raises `Ruling` where the candidate does not pass."""
    findings.device = f"{bench.device} ({bench.name})"
    room: int | None = _first_room(bench, auditor, findings)
    while room is not None:
        judge = _judge_beside if room < bench.gate.first_alone else _judge_alone
        room = judge(bench, auditor, language, findings, room)


def _first_room(bench: Bench, auditor: Auditor, findings: Findings) -> int:
    """Where to judge first: where the problem was found to fit, now or before this process began; else in a share.

    To find out that a problem of gigabytes does not fit a share, or twice as much, takes contexts and seconds. And no
    candidate of one that was refused needs to be looked at.

    Raises:
        Ruling: it was.
    """
    problem, precision = findings.problem, findings.protocol.precision
    found = bench.large.get(problem.hash)
    for room in range(len(bench.rooms)) if found is None else [found]:
        report = _known(bench, auditor, problem, precision, room)
        if report is not None and not report.lacks:
            refuse(report, findings.protocol)
            if room:
                bench.large[problem.hash] = room
            return room
    return found or 0


def _known(bench: Bench, auditor: Auditor, problem: Problem, precision: str, room: int) -> AuditReport | None:
    """What is remembered of a problem's audit in a room."""
    at = (problem, bench.name or "cpu", precision, bench.rooms[room].heap_bytes)
    return auditor.known(*at, may_be_cramped=bench.may_be_cramped(room))


def audit_on_cuda(
    bench: Bench, auditor: Auditor, problem: Problem, protocol: Protocol, guest: Guest, *, fresh: bool = False
) -> AuditReport:
    """Audit a problem with a reference runner and nothing else: with more memory than in a verdict, if it is alone.

    What a problem may need is counted by what a verdict has, though. What is known needs no runner, which would have a
    context and nearly all of the memory only to be asked nothing.

    Raises:
        Ruling: its source does not import.
    """
    if not fresh and (known := _known(bench, auditor, problem, protocol.precision, guest.room)) is not None:
        return known
    limit, may_be_cramped = bench.room(guest).heap_bytes, bench.may_be_cramped(guest.room)
    room = bench.audit_room(guest) if guest.is_alone else None
    with bench.lent_reference(problem, protocol, guest, room) as reference:
        reference.post_open()
        reference.prepare()
        return auditor.audit(problem, reference, protocol.precision, limit, may_be_cramped=may_be_cramped, fresh=fresh)


def _judge_beside(bench: Bench, auditor: Auditor, language: Language, findings: Findings, room: int) -> int | None:
    """Judge beside others; where next, if that came to nothing for want of memory.

    Host memory is each one's own; of the device's, others had a part, and perhaps more than their part. So a candidate
    that ran out of it is judged again alone, and a problem that does not fit where there is more.
    """
    alone = bench.gate.first_alone
    with bench.gate.admit(room) as guest:
        try:
            _Verdict(bench, auditor, language, findings, guest).judge()
            return None
        except Ruling as ruling:
            if ruling.lacks != "memory" or not (guest.had_company or bench.has_more(room)):
                raise
            if ruling.status is Status.OUT_OF_MEMORY:
                findings.notes.append("ran out of device memory beside other candidates, and was judged again alone")
                return alone
            room = bench.large[findings.problem.hash] = _next_room(bench, room, ruling.message)
            log.info("%s has more memory from now on: %s", findings.problem.name, ruling.message)
            return room
        except RuntimeError as error:  # It was the judge that had no room for what came back.
            if not is_out_of_memory(error) or not bench.has_more(room):
                raise
            findings.notes.append("the judge ran out of device memory beside other candidates, and judged it alone")
            log.info("%s is judged alone this time: %s", findings.problem.name, error)
            if not guest.had_company:
                bench.large[findings.problem.hash] = room + 1
            return alone
        finally:
            if guest.had_company:  # Within the stages, not beside them.
                findings.stage_seconds["held"] = round(guest.seconds_held, 4)
                findings.stage_seconds["stopping"] = round(guest.seconds_stopping, 4)
                findings.stage_seconds["alone"] = round(guest.seconds_alone, 4)


def _next_room(bench: Bench, room: int, reason: str) -> int:
    """Where there may be room for what did not fit here, if that is told: arguments, and results if they are packed.

    Each room that is tried on the way begins when everybody else has left, and takes contexts to be found too small.
    """
    found = re.search(r"(\d{1,18}) bytes needed", reason)
    needed = int(found[1]) if found else 0
    larger = range(room + 1, len(bench.rooms))
    fitting = (one for one in larger if bench.rooms[one].in_place or bench.rooms[one].exchange_bytes >= needed)
    return next(fitting, larger[-1])


def _judge_alone(bench: Bench, auditor: Auditor, language: Language, findings: Findings, room: int) -> int | None:
    """Judge with all of the device; where next, if even that was not enough memory."""
    with built_ahead(bench, language, findings) as (ahead, workshop), bench.gate.admit(room, ahead) as guest:
        reason = f"the problem is too large for {bench.device}: inputs and answers do not fit beside each other"
        try:
            with findings.stage("audit"):
                bench.server.start()
                report = audit_on_cuda(bench, auditor, findings.problem, findings.protocol, guest)
            if report.lacks != "memory" or not bench.has_more(room):
                _Verdict(bench, auditor, language, findings, guest, workshop).judge()
                return None
            is_problems, reason = True, report.reason
        except Ruling as ruling:
            is_problems = ruling.status is not Status.OUT_OF_MEMORY
            is_tight = is_problems or findings.problem.hash in bench.large  # Else it is the candidate's own affair.
            if ruling.lacks != "memory" or not (is_tight and bench.has_more(room)):
                raise
            reason = ruling.message
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            log.warning("%s does not fit (%s): %s", findings.problem.name, _place(error), bench.memory())
            if not bench.has_more(room):
                raise Ruling(Status.INVALID_PROBLEM, reason, lacks="memory") from None
            is_problems = True
    if is_problems:
        bench.large[findings.problem.hash] = room + 1
    log.info("%s has all of the device, and no twin beside it: %s", findings.problem.name, reason)
    return room + 1


def _place(error: Exception) -> str:
    """The innermost function of ours that an error has come through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "kerneldojo" in frame.filename]
    return f"{Path(frames[-1].filename).stem}.{frames[-1].name}" if frames else "somewhere"


@dataclass
class _Verdict:
    bench: Bench
    auditor: Auditor
    language: Language
    findings: Findings
    guest: Guest
    workshop: Workshop = field(default_factory=Workshop)
    """In which something may be built already."""
    turn: Turn | None = None
    """Its turn to have memory for timing, once it has asked for it."""

    def judge(self) -> None:
        bench, findings, guest = self.bench, self.findings, self.guest
        parties = Parties(bench, guest, self.auditor, self.language, findings, self.workshop)
        with self._scored(), contextlib.ExitStack() as stack:
            stack.callback(self._end_turn)  # Last of all: its processes have that memory until they are dead.
            with findings.stage("start"):
                bench.server.start()
                bench.enter()
                if parties.is_ahead:
                    parties.try_source(stack)
                reference = stack.enter_context(bench.lent_reference(findings.problem, findings.protocol, guest))
                stack.enter_context(parties.ending())
            contestant, twin = parties.come(reference)
            with findings.stage("audit"):
                limit = bench.room(guest).heap_bytes
                may_be_cramped = bench.may_be_cramped(guest.room)
                conduct = self.auditor.conduct(findings, reference, limit, may_be_cramped=may_be_cramped)
            match = Match(reference, contestant, conduct)
            if not bench.room(guest).in_place:  # Else there may be no room for one more set of inputs.
                twin.rehearse = partial(rehearse_twin, match)
            is_twin_late = parties.comes_late
            self._play(match, twin, is_twin_late=is_twin_late)
            ask_turn = self._ask_turn if bench.timed is not None and guest.room == 0 else None
            can_silence = not parties.needs_twin
            Measurement(
                bench, guest, findings, parties.workshop, match, twin, is_twin_late, can_silence, ask_turn
            ).take()

    @contextlib.contextmanager
    def _scored(self) -> Generator[None]:
        """That a device lacks something is a claim of the candidate's, and nobody would score it: where none lacks
        anything, it failed."""
        try:
            yield
        except Ruling as ruling:
            if ruling.status is Status.UNSUPPORTED_ON_DEVICE and self.bench.has_all_tools:
                raise Ruling(Status.RUNTIME_ERROR, frameless(ruling).message) from None
            raise

    def _ask_turn(self) -> Turn:
        assert self.bench.timed is not None
        self.turn = self.bench.timed.ask()
        return self.turn

    def _end_turn(self) -> None:
        if self.turn is not None:
            self.turn.give_back()

    def _play(self, match: Match, twin: Twin, *, is_twin_late: bool) -> None:
        findings, protocol = self.findings, self.findings.protocol
        repeats = set(random.SystemRandom().sample(range(protocol.num_rounds), protocol.num_repeats))
        try:
            with findings.stage("correctness"):
                for number in range(protocol.num_rounds):
                    # An autotuner chooses at the first call, by times: it needs the device to itself.
                    alone = number == 0 and "autotune" in findings.candidate.source
                    with self.guest.window() if alone else contextlib.nullcontext():
                        match.play_round(number, repeat=number in repeats)
                    if match.seen.ran_own_kernel and not is_twin_late:
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
