"""The judge's grip on the processes it does not trust.

A `Session` is one contestant (or one reference runner) as the judge sees it: a door to send commands through, a leash
to kill it with, and an arena for tensors. Every command has a deadline; how a session may end is in `ends`.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from kerneldojo.contestant.arena import BadSlot, HostArena, Slot
from kerneldojo.contestant.removal import remove_tree
from kerneldojo.contestant.sandbox.processes import descendants
from kerneldojo.contestant.scratch import own_folder
from kerneldojo.contestant.wire import ChannelClosed, DeadlinePassed, MalformedFrame, WireError, channel_pair
from kerneldojo.judging.brake import Brake
from kerneldojo.judging.ends import Died, Infrastructure, Late, Tampered, failed
from kerneldojo.judging.servers import ForkServer

__all__ = ["ForkServer", "NoArena", "Session", "host_arena"]

NUM_OWN = 2
"""Processes of a session below its keeper that hosted code did not start: itself, and the first of its namespace."""

log = logging.getLogger(__name__)


class NoArena:
    """The memory of a process that has none, or none yet."""

    device = torch.device("cpu")
    num_bytes = 0
    most_told = 0
    in_place = False
    is_left = False
    inputs = None
    fds: tuple[int, ...] = ()

    def view(self, slot: Slot) -> torch.Tensor:
        """There is nothing to be seen; raises `BadSlot`."""
        raise BadSlot("there is no shared memory")

    def close(self) -> None:
        """There is nothing to be given back."""


class Session:
    """One hosted process.

    Args:
        server: where it is forked.
        arena: memory shared with it; the session owns it from now on. With `NoArena` it may get some later: whoever
            sets `arena` then has to send its descriptors beside a command.
        request: what the sandbox allows: `readable`, `device_nodes`, `limits`, `environment`, `device`.
        line: its line to a workshop, if it has one; the session owns it from now on.
        is_workshop: whether it is a workshop; then `arena` holds its lines and no memory.
    """

    def __init__(
        self,
        server: ForkServer,
        arena: Any,
        request: dict[str, Any],
        line: socket.socket | None = None,
        *,
        is_workshop: bool = False,
    ) -> None:
        self.arena: Any = arena
        self.server = server
        self.ended: dict[str, Any] | None = None
        self.measures: tuple[str, ...] = ()
        """What isolation holds; known once `wait_started` returned."""
        self._keeper = 0
        """Process id of its keeper, known with `measures`; everything that is hosted hangs below it."""
        self._number = 0
        self._answered = 0
        self._pid = 0
        self._is_dying = False
        with contextlib.ExitStack() as given, contextlib.ExitStack() as ours:
            ours.callback(arena.close)  # Also if there is no descriptor or no file to be had: nobody else knows of it.
            if line is not None:
                given.callback(line.close)
            self._scratch = Path(tempfile.mkdtemp(prefix="dojo-", dir=own_folder()))
            ours.callback(remove_tree, self._scratch)
            self._door, their_door = channel_pair()
            ours.callback(self._door.close)
            given.callback(their_door.close)
            self._leash, their_leash = channel_pair()
            ours.callback(self._leash.close)
            leash = self._leash  # Not of `self`: a session that knows itself would wait for a garbage collector.
            self._brake = Brake(lambda order: leash.send({"op": order}))
            given.callback(their_leash.close)
            lines = [] if line is None else [line.fileno()]
            fds = [their_leash.fileno(), their_door.fileno(), *arena.fds, *lines]
            role = {"is_workshop": is_workshop, "has_line": line is not None}
            server.spawn({**request, **role, "scratch": str(self._scratch)}, fds)
            ours.pop_all()

    def ask(self, operation: str, *, timeout: float, **fields: Any) -> dict[str, Any]:
        """Send a command and return its answer.

        Raises:
            HostedEnd: `Failed`, `Died`, `Late` or `Tampered`.
            Infrastructure: the process could not be started.
        """
        self.post(operation, **fields)
        return self.collect(timeout)

    def post(self, operation: str, descriptors: Sequence[int] = (), **fields: Any) -> None:
        """Send a command, and descriptors beside it; its answer is fetched with `collect`."""
        if self._door.is_closed():
            raise self._died()
        if self._door.has_unread():
            raise Tampered("it spoke without being asked")
        self._number += 1
        try:
            self._door.send({"op": operation, "number": self._number, **fields}, descriptors)
        except ChannelClosed:
            raise self._died() from None
        except DeadlinePassed:
            self.kill()
            raise Late("it does not listen") from None

    def collect(self, timeout: float) -> dict[str, Any]:
        """Return the answer to the last command."""
        try:
            answer = self._door.receive(max(timeout, 0.001))
        except DeadlinePassed:
            self.kill()
            raise Late(f"no answer within {timeout:.1f} s") from None
        except ChannelClosed:
            raise self._died() from None
        except MalformedFrame as error:
            self.kill()
            raise Tampered(str(error)) from None
        if answer.get("number") != self._number:
            raise Tampered("it answered a question that was not asked")
        self._answered = self._number
        failure = answer.get("failure")
        if failure is not None:
            raise failed(failure, answer.get("specializations"))
        return answer

    def _died(self) -> Died:
        """Its door is closed: wait a moment for its own end, so that this is what is seen, and say how it ended."""
        self.kill(patience=2.0)
        log.info("a hosted process ended: %s", {**(self.ended or {}), "measures": "..."})
        return Died(self.ended or {})

    def has_answered(self, seconds: float = 0.0) -> bool:
        """Whether the answer to the last command is there in so long, or will never be: `collect` would not wait."""
        return self.ended is not None or self._door.has_frame(seconds)

    def has_ended(self) -> bool:
        """Whether it ended by itself, as far as has been heard."""
        with contextlib.suppress(WireError):
            self._hear_unread()
        return self.ended is not None

    def is_idle(self) -> bool:
        """Whether it lives, has answered everything that it was asked, and has said nothing else."""
        if self.ended is not None or self._answered != self._number or self._door.has_unread():
            return False
        try:
            self._hear_unread()
        except (WireError, Infrastructure):
            return False
        return self.ended is None

    def _hear_unread(self) -> None:
        """Note what its fork server has said already."""
        while self.ended is None and self._leash.has_unread():
            self._note(self._leash.receive(1.0))

    def wait_started(self, timeout: float = 30.0) -> None:
        """Wait until the sandbox has closed around it, or it has ended.

        Raises:
            Infrastructure: it was never heard of: its fork server died, or hangs.
        """
        while not self.measures and self.ended is None:
            self._hear(timeout)

    def _hear(self, timeout: float) -> None:
        """Note the next message of its fork server."""
        try:
            message = self._leash.receive(timeout)
        except WireError as error:
            raise Infrastructure(f"nothing was heard of a contestant: {error}") from None
        self._note(message)

    def pids(self) -> list[int]:
        """Ids of its processes as they are now; none before it has started or once it has ended."""
        if not self._keeper or self.ended is not None:
            return []
        below = descendants(self._keeper)
        if self._pid and self._pid not in below:  # Its fork server is its parent; its orphans are its keeper's.
            below += [self._pid, *descendants(self._pid)]
        return below

    def has_company(self) -> bool:
        """Whether hosted code has started processes that are there now."""
        return len(self.pids()) > NUM_OWN

    def freeze(self, timeout: float = 5.0) -> None:
        """Stop it from running until `thaw`; returns when it is stopped, or has ended."""
        self.order_freeze()
        self.wait_frozen(timeout)

    def order_freeze(self) -> None:
        """Have it stopped without waiting for that: several may be ordered to before any is waited for."""
        self.wait_started()
        if self.ended is None:
            self._hear_unread()
            self._brake.stop()

    def wait_frozen(self, timeout: float = 5.0) -> None:
        """Wait until it is stopped as ordered, or has ended."""
        while self.ended is None and self._brake.is_owed:  # Answers to earlier orders come first.
            self._hear(timeout)
        self._brake.wait_stopped()

    def thaw(self) -> None:
        """Let it run again, at once or soon: it is not waited for."""
        self.wait_started()
        if self.ended is None:
            self._brake.release()

    def stop_directly(self) -> None:
        """Stop it until `go_on` if that takes nobody but us; another thread may be waiting for its answer."""
        if not self._brake.is_held:
            self._brake.stop_directly()

    def go_on(self) -> None:
        """Let it run if it was stopped directly; else nothing."""
        if self._brake.is_held:
            self._brake.release()

    def kill(self, patience: float = 0.0) -> None:
        """End it and everything that it started; `ended` says how it ended.

        Args:
            patience: seconds to wait for it to have ended by itself, so that its own end is what is seen.
        """
        if self.ended is not None:
            return
        if patience:
            with contextlib.suppress(WireError):
                self._wait_ended(patience)
                return
        # It may have ended meanwhile: then the leash cannot be written to, but how it ended can still be read.
        if not self._is_dying:
            with contextlib.suppress(WireError):
                self._leash.send({"op": "kill"})
        with contextlib.suppress(WireError):
            self._wait_ended(30.0)
        if self.ended is None:
            raise Infrastructure("a contestant's end was not reported: its fork server died")

    def _wait_ended(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while self.ended is None:
            self._note(self._leash.receive(max(0.001, deadline - time.monotonic())))

    def _note(self, message: dict[str, Any]) -> None:
        if "failed" in message:
            raise Infrastructure(f"a contestant could not be started: {message['failed']}")
        if "started" in message:
            self.measures = tuple(message["started"]["measures"])
            self._keeper = int(message["started"]["keeper"])
            self._pid = int(message["started"]["pid"] or 0)
            self._brake.fit(message["started"]["freezer"])
        if "frozen" in message:
            self._brake.hear_answer()
        if "ended" in message:
            self.ended = message["ended"]

    def rest(self, resting: bool) -> None:
        """Say that nothing is asked of it for a while, so that nobody need watch it closely; or that work begins."""
        with contextlib.suppress(WireError):  # Whoever uses it next will find out that it is gone.
            self._brake.rest(resting)

    @property
    def has_arena(self) -> bool:
        """Whether it shares memory with the judge now."""
        return not isinstance(self.arena, NoArena)

    def part_with_arena(self) -> None:
        """Free the memory shared with it; it may get other memory later."""
        arena, self.arena = self.arena, NoArena()
        arena.close()

    def order_end(self) -> None:
        """Have it killed, without waiting for it: `close` does, and must be called all the same."""
        if self.ended is None:
            with contextlib.suppress(WireError):
                self._leash.send({"op": "kill"})
            self._is_dying = True

    def close(self) -> None:
        """Kill it if it lives, and give everything back."""
        try:
            self.kill()
        finally:
            self._discard()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _discard(self) -> None:
        self._door.close()
        self._leash.close()
        self._brake.close()
        self.arena.is_left = self.ended is not None
        try:
            self.arena.close()
        finally:  # A device that was lost does not take memory back.
            remove_tree(self._scratch)


def host_arena(num_bytes: int) -> HostArena:
    """An arena in host memory, for the flavours without a GPU."""
    return HostArena.create(num_bytes)
