"""What a device's bench is, whatever the device: a gate, a fork server, and reference runners that live on.

What is made here are the hosted processes of a verdict. Each has a session (a process, locked in) from the moment it
is asked for, and a context only once it is told to open its device: a context is what a GPU cannot make many of. Where
several verdicts are judged at once, contexts are made ahead, in blanks, and a verdict's processes are such ones.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import socket
from collections.abc import Collection, Generator, Sequence
from typing import Any

from kerneldojo.devices.cuda.driver import CudaError
from kerneldojo.devices.cuda.precompiled import Precompiled
from kerneldojo.judging.alone import Alone
from kerneldojo.judging.bench_time import BenchTime
from kerneldojo.judging.blanks import OPEN_SECONDS, Blanks
from kerneldojo.judging.contestant import Contestant
from kerneldojo.judging.ends import HostedEnd, Infrastructure
from kerneldojo.judging.gated_session import GatedSession
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.processes import ForkServer, NoArena, Session
from kerneldojo.judging.protocol import Protocol
from kerneldojo.judging.reference import Reference, patience
from kerneldojo.judging.reference_times import ReferenceTimes
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.shares import Shares
from kerneldojo.judging.stock import Endings, Ready
from kerneldojo.judging.submission import Submission
from kerneldojo.judging.surroundings import request
from kerneldojo.judging.tries import Tries
from kerneldojo.schema import Problem, content_hash
from kerneldojo.schema.pace import Pace

NUM_TRIALS = 2
"""Processes that wait for a source to be tried in them."""


class Bench(BenchTime):
    """What does not depend on the device being a GPU: sessions, the gate, and runners that are kept.

    Args:
        server: where hosted processes are forked.
        shares: how many verdicts and runners there may be, and how much memory each has.
        alone: the same for one verdict that has the device alone, and for its audit; by default no more than any other.
        device: as a session's request names it.
        cores, pace: see `CudaBench`.
        larger: divisions for fewer verdicts, tried in this order before one is judged alone.
    """

    name = ""
    emulated = ""
    """The GPU that candidates find where they are called without one, as `devices.specs` names it; empty for none."""

    def __init__(
        self,
        server: ForkServer,
        shares: Shares,
        device: str,
        cores: Collection[int] = (),
        alone: Sequence[Alone] = (),
        pace: Pace | None = None,
        larger: Sequence[Shares] = (),
    ) -> None:
        super().__init__(shares, cores, alone, pace, larger)
        self.server = server
        self.large = dict[str, int]()
        """Rooms, by hash, of problems that were found to need more than a share."""
        self.device = device
        self.blanks: Blanks | None = None
        """Processes with an open device that are nobody's yet; None where contexts are made as they are needed."""
        if shares.num_ahead:
            self.blanks = Blanks(
                self._begin,
                shares.num_ahead,
                self._furnish_ahead if shares.are_furnished else lambda _: False,
                lambda: self.gate.is_open,
            )
            self.gate.on_open, self.gate.on_close = self.blanks.begin_moment, self.blanks.end_moment
        self._endings = Endings()
        self._trials = Ready(self._begin, NUM_TRIALS, self._endings)
        """Processes without the device, in which sources are tried."""
        self.reference_times: ReferenceTimes | None = None
        self.second_series = Tries()
        """On cores that are slow: worth it if those of the second were quicker."""
        atexit.register(self.close)  # Its fork server did so before, so it is still there when runners end.

    def _begin(self, wanted: dict[str, Any]) -> GatedSession:
        """A process that is nobody's yet, and has no memory."""
        return GatedSession(self.server, NoArena(), wanted)

    @property
    def has_all_tools(self) -> bool:
        """Whether there is nothing that a candidate may use and this device or machine lacks."""
        return False

    def device_nodes(self) -> list[str] | None:
        """The nodes that hosted processes may use; None for a device that is not a GPU."""
        return None

    @contextlib.contextmanager
    def lent_reference(
        self, problem: Problem, protocol: Protocol, guest: Guest, room: Shares | None = None
    ) -> Generator[Reference]:
        """A reference runner for one verdict, perhaps one that has served others; `prepare` it before use.

        It is kept for the next verdict only if this one ended in order, and what it was shared with is dead. Its memory
        is `room`, by default the guest's.
        """
        room = room or self.room(guest)
        wanted = request(protocol, self.device, self.device_nodes())
        key = content_hash(problem.source, json.dumps(wanted, sort_keys=True))
        has_all = room != self.shares
        if has_all:  # Also what others have left behind; and a runner so large serves nobody else.
            if self.blanks is not None:
                self.blanks.evict()
            self.runners.evict()
            self.tidy(most_bytes=0)
        reference = None if has_all else self.runners.take(key)
        if reference is None:
            session = self._session(protocol, guest, None, room=room, is_runners=True)
            reference = Reference(session, problem, patience(protocol.timeout))
        else:
            self._equip(reference.hosted.session, guest, None, room, is_runners=True)
            reference.renew(patience(protocol.timeout))
        guest.budgets.append(reference.hosted)
        is_spent = True
        try:
            yield reference
            is_spent = False
        except Ruling:
            is_spent = False
            raise
        finally:
            session = reference.hosted.session
            assert isinstance(session, GatedSession)
            # One that compiled its baseline is not kept: torch falls back to eager after a few compilations.
            is_spent = is_spent or has_all or protocol.baseline == "compile"
            # It clears up while it still belongs to this verdict, so that no window has to wait for that.
            is_settled = not is_spent and self.runners.settle(reference)
            session.part()
            self.runners.give_back(key, reference, is_settled=is_settled)

    def contestant(
        self,
        submission: Submission,
        protocol: Protocol,
        guest: Guest,
        inputs: Any,
        line: socket.socket | None = None,
        *,
        silent: bool = False,
    ) -> Contestant:
        """A fresh contestant, with its line to a workshop; nothing of the candidate has run in it yet."""
        session = self._session(protocol, guest, inputs, line, silent=silent)
        session.inquest = self.inquest(protocol, guest)
        contestant = Contestant(session, submission, protocol.timeout)
        guest.budgets.append(contestant.hosted)
        return contestant

    def trial(
        self, submission: Submission, protocol: Protocol, guest: Guest, line: socket.socket | None = None
    ) -> tuple[Contestant, GatedSession]:
        """A process that sees whether a source imports, and opens no device; and its session."""
        wanted = request(protocol, self.device, self.device_nodes())
        if line is not None:
            session = GatedSession(self.server, NoArena(), wanted, guest, line)
        else:
            session = self._trials.take(wanted)
            session.attend(guest)
        contestant = Contestant(session, submission, protocol.timeout)
        guest.budgets.append(contestant.hosted)
        return contestant, session

    def dismiss(self, session: GatedSession) -> None:
        """End a trial; nobody waits for that."""
        session.order_end()  # Before it is nobody's, whom no window stops.
        session.part()  # Or it would be given a core of its own in this verdict's windows.
        self._endings.add(session)

    def opened(
        self,
        submission: Submission,
        protocol: Protocol,
        guest: Guest,
        inputs: Any,
        *,
        silent: bool = False,
        is_waiting: bool = True,
    ) -> Contestant | None:
        """A contestant that has an open device already, and is to be furnished.

        Args:
            submission, protocol, guest, inputs, silent: as for `contestant`.
            is_waiting: whether to wait for one; else there may be None.

        Raises:
            Infrastructure: none can be made.
        """
        assert self.blanks is not None
        wanted = request(protocol, self.device, self.device_nodes())
        session, seconds = self.blanks.take(wanted), OPEN_SECONDS
        while session is None and is_waiting:
            if not (seconds := guest.wait_for_others(self.blanks.wait, seconds)):
                raise Infrastructure(f"{self.device} made no context in {OPEN_SECONDS:.0f} s")
            session = self.blanks.take(wanted)
        if session is None:
            return None
        assert isinstance(session, GatedSession)
        session.inquest = self.inquest(protocol, guest)
        is_furnished = session.has_arena
        if is_furnished:
            session.attend(guest)
            self.hand_out(session.arena, silent=silent)
        else:
            self._equip(session, guest, inputs, self.room(guest), silent=silent)
        contestant = Contestant(session, submission, protocol.timeout, is_furnished=is_furnished)
        guest.budgets.append(contestant.hosted)
        return contestant

    def _furnish_ahead(self, session: Session) -> bool:
        """Begin to give a blank its memory, if there is some; see `Blanks`."""
        self.enter()
        try:
            arena = self.arena_ahead()
        except CudaError:  # It gets some when it is taken, as far as there is any then.
            return False
        if arena is None:
            return False
        session.arena = arena
        session.post("furnish", arena.fds)
        return True

    def workshop(self, lines: Any, protocol: Protocol, guest: Guest) -> GatedSession:
        """A process without the device that compiles for those at the other ends of `lines`."""
        wanted = request(protocol, self.device)
        if (made := self.precompiled()) is not None:
            wanted |= {"readable": [*wanted["readable"], str(made.folder)], "precompiled": str(made.folder)}
        return GatedSession(self.server, lines, wanted, guest, is_workshop=True)

    def precompiled(self) -> Precompiled | None:
        """What workshops find compiled, if there is anything."""
        return None

    def can_open(self, protocol: Protocol, guest: Guest, inputs: Any) -> bool:
        """Whether a process with nothing of anybody's in it can open the device now, in memory like a contestant's."""
        session = self._session(protocol, guest, inputs)
        try:
            session.post("open", session.arena.fds)
            session.collect(OPEN_SECONDS)
        except HostedEnd:
            return False
        finally:
            session.close()
        return True

    def _session(
        self,
        protocol: Protocol,
        guest: Guest,
        inputs: Any,
        line: socket.socket | None = None,
        *,
        silent: bool = False,
        room: Shares | None = None,
        is_runners: bool = False,
    ) -> GatedSession:
        self.enter()
        wanted = request(protocol, self.device, self.device_nodes())
        arena = self._arena(inputs, room or self.room(guest), silent=silent, is_runners=is_runners)
        try:
            session = GatedSession(self.server, NoArena(), wanted, guest, line)
        except BaseException:
            arena.close()
            raise
        session.arena = arena  # It is told with its first command (`Hosted.post_furnish`).
        return session

    def _equip(self, session: Session, guest: Guest, inputs: Any, room: Shares, **options: bool) -> None:
        """Have one that waited belong to a verdict, with memory; it is ended if there is none for it."""
        assert isinstance(session, GatedSession)
        session.attend(guest)
        try:
            session.arena = self._arena(inputs, room, **options)
        except BaseException:
            session.close()
            raise

    def end(self, guest: Guest, sessions: Sequence[Session]) -> None:
        """End processes of a verdict: the order is given to all of them before any is waited for.

        Where contexts are made ahead nobody's window waits for that.
        """
        for session in sessions:
            session.order_end()
        with contextlib.ExitStack() as stack:
            if self.blanks is not None:
                stack.enter_context(guest.beside_windows(sessions))
            for session in sessions:
                stack.callback(session.close)

    def close(self) -> None:
        """End the fork server and all that hangs on it."""
        atexit.unregister(self.close)
        try:
            if self.blanks is not None:
                self.blanks.close()
            self._trials.close()
            self._endings.close()
            if len(self.runners):
                self.enter()
            self.runners.close()
        finally:
            self.server.close()
