"""Judging on a real GPU: in which of its rooms. How a verdict comes about there is in `hearing`.

A device's memory is divided in several ways (`division`, `alone`), each a *room*: a share for each of so many verdicts,
larger shares for fewer, and all of it for one. A verdict begins in the first room in which its problem may fit, by what
is known of it, and goes on to a larger one when something did not.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kerneldojo.devices.cuda.memory import is_out_of_memory
from kerneldojo.judging.ahead import Ahead, built_ahead
from kerneldojo.judging.audits import JUDGES_SIDE, Auditor, refuse
from kerneldojo.judging.ends import frameless
from kerneldojo.judging.gated_bench import Bench
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.hearing import Hearing
from kerneldojo.judging.patience import TURN
from kerneldojo.judging.protocol import Protocol
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.verdict import Findings
from kerneldojo.languages import Language
from kerneldojo.problems.audit import AuditReport
from kerneldojo.schema import Problem, Status

log = logging.getLogger(__name__)


def judge_on_cuda(bench: Bench, auditor: Auditor, language: Language, findings: Findings) -> None:
    """Fill in `findings`; raises `Ruling` where the candidate does not pass."""
    findings.device = f"{bench.device} ({bench.name})"
    room: int | None = _first_room(bench, auditor, findings)
    with _scored(bench):
        while room is not None:
            with built_ahead(bench, language, findings) as ahead:
                while room is not None:
                    judge = _judge_beside if room < bench.gate.first_alone else _judge_alone
                    room = judge(bench, auditor, language, findings, room, ahead)
                    if not ahead.serves_on:
                        break


@contextmanager
def _scored(bench: Bench) -> Generator[None]:
    """That a device lacks something is a claim of the candidate's, and nobody would score it: where none lacks
    anything, it failed."""
    try:
        yield
    except Ruling as ruling:
        if ruling.status is Status.UNSUPPORTED_ON_DEVICE and bench.has_all_tools:
            raise Ruling(Status.RUNTIME_ERROR, frameless(ruling).message) from None
        raise


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
        if report is not None and (report.lacks != "memory" or bench.next_room(room, report.reason) is None):
            refuse(report, findings.protocol)
            if room:
                bench.large[problem.hash] = room
            return room
    return found or 0


def _known(bench: Bench, auditor: Auditor, problem: Problem, precision: str, room: int) -> AuditReport | None:
    """What is remembered of a problem's audit in a room."""
    return auditor.known(problem, bench.name or "cpu", precision, bench.limits(room))


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
    room = bench.audit_room(guest) if guest.is_alone else None
    with bench.lent_reference(problem, protocol, guest, room) as reference:
        reference.post_open()
        reference.prepare()
        return auditor.audit(problem, reference, protocol.precision, bench.limits(guest.room), fresh=fresh)


@contextmanager
def _inside(bench: Bench, findings: Findings, room: int, guest: Guest | None = None) -> Generator[Guest]:
    """Wait for a place, and have it; see `Gate.admit`."""
    with ExitStack() as stack:
        with findings.stage(TURN):
            inside = stack.enter_context(bench.gate.admit(room, guest))
        yield inside


def _judge_beside(
    bench: Bench, auditor: Auditor, language: Language, findings: Findings, room: int, ahead: Ahead
) -> int | None:
    """Judge beside others; where next, if that came to nothing for want of memory, or of the device's time.

    Host memory is each one's own; of the device's, others had a part, and perhaps more than their part. So a candidate
    that ran out of it is judged again alone, and a problem that does not fit where there is more. So is one
    that was ended beside others because the device did not get done, and was not the cause (`judging.inquest`).
    """
    alone = bench.gate.first_alone
    with _inside(bench, findings, room, ahead.guest) as guest:
        try:
            Hearing(bench, auditor, language, findings, guest, ahead.workshop).hold()
            return None
        except Ruling as ruling:
            if ruling.lacks == "time" and ruling.status is Status.TIMEOUT and guest.had_company:
                findings.notes.append("ended while another's kernel did not end, and was judged again alone")
                return alone
            if ruling.lacks != "memory":
                raise
            following = bench.next_room(room, ruling.message)
            if following is None and not guest.had_company:
                raise
            if ruling.status is Status.OUT_OF_MEMORY:
                findings.notes.append("ran out of device memory beside other candidates, and was judged again alone")
                return alone
            room = bench.large[findings.problem.hash] = following or alone
            log.info("%s has more memory from now on: %s", findings.problem.name, ruling.message)
            return room
        except RuntimeError as error:  # It was the judge that had no room for what came back.
            if not is_out_of_memory(error) or bench.next_room(room) is None:
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


def _judge_alone(
    bench: Bench, auditor: Auditor, language: Language, findings: Findings, room: int, ahead: Ahead
) -> int | None:
    """Judge with all of the device; where next, if even that was not enough memory."""
    with _inside(bench, findings, room, ahead.guest) as guest:
        reason = f"the problem is too large for {bench.device}: inputs and answers do not fit beside each other"
        following = bench.next_room(room, JUDGES_SIDE)
        try:
            with findings.stage("audit"):
                bench.server.start()
                report = audit_on_cuda(bench, auditor, findings.problem, findings.protocol, guest)
            if report.lacks == "memory":
                following, reason = bench.next_room(room, report.reason), report.reason
            if report.lacks != "memory" or following is None:
                Hearing(bench, auditor, language, findings, guest, ahead.workshop).hold()
                return None
        except Ruling as ruling:
            is_problems = ruling.status is not Status.OUT_OF_MEMORY
            is_tight = is_problems or findings.problem.hash in bench.large  # Else it is the candidate's own affair.
            following = bench.next_room(room, ruling.message if is_problems else "")
            if ruling.lacks != "memory" or not is_tight or following is None:
                raise
            reason = ruling.message
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            log.warning("%s does not fit (%s): %s", findings.problem.name, _place(error), bench.memory())
            if following is None:
                raise Ruling(Status.INVALID_PROBLEM, reason, lacks="memory") from None
    bench.large[findings.problem.hash] = following
    log.info("%s has all of the device, divided in another way: %s", findings.problem.name, reason)
    return following


def _place(error: Exception) -> str:
    """The innermost function of ours that an error has come through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "kerneldojo" in frame.filename]
    return f"{Path(frames[-1].filename).stem}.{frames[-1].name}" if frames else "somewhere"
