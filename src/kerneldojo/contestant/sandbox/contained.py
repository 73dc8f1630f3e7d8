"""Start a contestant, and the handle by which its owner holds it.

    fork server ── keeper ──[ PID namespace: first process ── contestant ── whatever it starts ]

`launch` is called in the fork server: one thread, everything imported, nothing secret in memory. A fork server that
has a porter forks the contestant alone, into the room that a keeper from there has made:

    fork server ┬─ porter ── keeper ──[ PID namespace: first process
                └─────────────────────[ contestant ── whatever it starts ]
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kerneldojo.contestant.sandbox import guests, processes
from kerneldojo.contestant.sandbox.enclosure import Plan, call_filter, usable
from kerneldojo.contestant.sandbox.features import Features
from kerneldojo.contestant.sandbox.filesystem import resolved
from kerneldojo.contestant.sandbox.inside import Pipes
from kerneldojo.contestant.sandbox.keeper import keep
from kerneldojo.contestant.sandbox.policy import Ended, Policy, SandboxError
from kerneldojo.contestant.sandbox.porter import Porter
from kerneldojo.contestant.sandbox.users import User

_LARGEST_MESSAGE = 4 << 20
_MOST_DESCRIPTORS = 4


def launch(main: Callable[[], None], policy: Policy, features: Features, porter: Porter | None = None) -> Contained:
    """Fork a contestant that locks itself in and then calls `main`; returns once it is locked in.

    Args and what holds: see `begin`.

    Raises:
        SandboxError: a measure that the features promise could not be taken. Nothing is left running.
    """
    contained = begin(main, policy, features, porter)
    contained.wait_enclosed()
    return contained


def begin(main: Callable[[], None], policy: Policy, features: Features, porter: Porter | None = None) -> Contained:
    """`launch` without waiting: locking in takes tens of milliseconds, most of them waiting for the kernel.

    `fileno` becomes readable when there is something to `hear`; it must be heard until it `is_enclosed` (or
    `wait_enclosed` does so) before `result`. `main` runs in a fork of this process with all descriptors closed but
    `policy.keep_fds`, which must stay open here until it `is_forked`; with stdin at /dev/null, stdout and stderr
    captured. It ends with status 0 when `main` returns and 1 when it raises.

    Args:
        main: what to run; the first thing that may touch candidate code.
        policy: its world.
        features: what to use of the host, from `probe`.
        porter: who forks the keeper, if the features allow that; None for this process.
    """
    events, keepers_events = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control, keepers_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (events, keepers_events):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LARGEST_MESSAGE)
    try:
        if porter is not None and features.takes_guests and usable(policy, features) == features:
            with contextlib.suppress(OSError):  # It is gone: then this process is its own porter.
                porter.have_kept(policy, features, keepers_events, keepers_control)
                return Contained(events, control, invited=(main, Plan(policy, features, None)))
        resolved(policy.readable)  # Here, so that its forks find it done.
        given = [(status.st_dev, status.st_ino) for status in map(os.fstat, policy.keep_fds)]
        keeper = os.fork()
        if keeper == 0:
            keep(main, policy, features, keepers_events, keepers_control, given)
        return Contained(events, control, keeper=keeper)
    finally:
        keepers_events.close()
        keepers_control.close()


class Contained:
    """One running contestant. Made by `launch` or `begin`; wait for `fileno`, then ask for `result`."""

    def __init__(
        self,
        events: socket.socket,
        control: socket.socket,
        *,
        keeper: int = 0,
        invited: tuple[Callable[[], None], Plan] | None = None,
    ) -> None:
        self._events, self._control = events, control
        self._invited = invited
        self._guest = self._keepers_pidfd = -1
        self.keeper = keeper
        """Process id of its keeper; 0 while there is none that we know of."""
        self.is_forked = invited is None
        """Whether it has its descriptors."""
        self._received: Sequence[int] = []
        self._ended: Ended | None = None
        self._groups: list[Path] = []
        self.is_enclosed = False
        """Whether it is known to be locked in: `wait_enclosed` returned."""
        self.pid: int | None = None
        """Process id of the contestant as we see it, once enclosed; None if it ended before the keeper looked."""
        self.measures: tuple[str, ...] = ()
        """What isolation holds, once enclosed."""
        self.freezer: str | None = None
        """Where orders to stop it may be written instead of asking for that, once enclosed; see `Freezer`."""

    def wait_enclosed(self) -> None:
        """Wait until it is locked in and about to run `main`.

        Raises:
            SandboxError: it could not be locked in. Nothing is left running.
        """
        while not self.is_enclosed:
            self.hear()

    def hear(self) -> None:
        """Take in what its keeper says next until it `is_enclosed`; blocks unless `fileno` is readable.

        That there is room for it is answered by forking it: collect garbage before.

        Raises:
            SandboxError: it could not be locked in. Nothing is left running.
        """
        if not self.is_forked:
            self._enter(self._receive("room"))
            return
        ready = self._receive("ready")
        self._groups = [Path(folder) for folder in ready["groups"]]
        self.pid = ready["pid"]
        self.measures = tuple(ready["measures"])
        self.freezer = ready["freezer"]
        self.is_enclosed = True

    def _enter(self, room: dict[str, Any]) -> None:
        """Fork the contestant into its room."""
        assert self._invited is not None
        main, plan = self._invited
        self._keepers_pidfd, first, status, output = self._received
        self.keeper = room["keeper"]
        self._groups = [Path(folder) for folder in room["groups"]]
        plan = replace(plan, uid=None if room["uid"] is None else User(room["uid"]))
        call_filter(plan)  # Here, so that its forks find it done.
        pidfd = -1
        try:
            self._guest, pidfd = guests.fork(main, plan, self._groups, first, Pipes(status, output, exit=-1))
            socket.send_fds(self._events, [str(self._guest).encode()], [pidfd])
        except OSError as error:
            if pidfd >= 0:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            self._bury_keeper()
            raise SandboxError(f"a contestant could not enter its room: {error}") from None
        finally:
            for descriptor in (first, status, output, *([pidfd] if pidfd >= 0 else [])):
                os.close(descriptor)
            self._received, self._invited, self.is_forked = [], None, True

    def fileno(self) -> int:
        """A descriptor that becomes readable when it is enclosed, and again when it has ended; for `select`."""
        return self._events.fileno()

    def result(self) -> Ended:
        """How it ended; waits for that. Afterwards none of its processes exists.

        Raises:
            SandboxError: its keeper failed.
        """
        if self._ended is None:
            self.wait_enclosed()
            ended = self._receive("ended")
            ended["measures"] = tuple(ended["measures"])
            self._ended = self._completed(Ended(**ended))
            self._wait_keeper()
            self._events.close()
            self._control.close()
        return self._ended

    def _completed(self, ended: Ended) -> Ended:
        """With what only its parent knows, which of a guest we are and not its keeper."""
        if self._guest < 0:
            return ended
        death = guests.death_of(self._guest)
        return replace(
            ended,
            exit_code=death.code if death.code >= 0 else None,
            signal=-death.code if death.code < 0 else None,
            cpu_seconds=ended.cpu_seconds + death.cpu_seconds,
            max_rss_bytes=max(ended.max_rss_bytes, 0 if ended.max_rss_bytes else death.max_rss_bytes),
        )

    def _wait_keeper(self) -> None:
        """Until it does not exist any more."""
        if self._keepers_pidfd < 0:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.keeper, 0)
            return
        poll = select.poll()
        poll.register(self._keepers_pidfd, select.POLLIN)
        poll.poll()
        os.close(self._keepers_pidfd)
        self._keepers_pidfd = -1

    def kill(self) -> Ended:
        """End it and all below it now. Returns when nothing is left."""
        self.ask_to_end()
        return self.result()

    def ask_to_end(self) -> None:
        """The same without waiting: `fileno` becomes readable when nothing is left."""
        self._ask(b"kill")

    def rest(self, resting: bool) -> None:
        """Say that it waits for work, so that its limits need not be watched closely, or that work begins."""
        self._ask(b"rest" if resting else b"wake")

    def freeze(self) -> bool:
        """Stop all of its processes; returns when they are. False if it has ended."""
        self.ask_to_freeze(True)
        return self.wait_frozen()

    def thaw(self) -> bool:
        """Let them go on. False if it has ended."""
        self.ask_to_freeze(False)
        return self.wait_frozen()

    def ask_to_freeze(self, frozen: bool) -> None:
        """Begin to stop all of its processes, or to let them go on: several may be asked before any is waited for."""
        self.wait_enclosed()  # Its keeper would not answer before.
        self._ask(b"freeze" if frozen else b"thaw")

    def wait_frozen(self) -> bool:
        """Wait until what `ask_to_freeze` asked for holds, once for each time. False if it has ended."""
        return self._answer() is not None

    def memory_bytes(self) -> int:
        """Host memory in use by all of its processes, in bytes; 0 if it has ended."""
        self.wait_enclosed()
        self._ask(b"memory")
        return int(self._answer() or 0)

    def _ask(self, what: bytes) -> None:
        if self._ended is None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._control.send(what)

    def _answer(self) -> bytes | None:
        if self._ended is not None:
            return None
        guests.wait_for(self._control.fileno())
        try:
            return self._control.recv(64) or None
        except ConnectionResetError:
            return None

    def _receive(self, kind: str) -> dict[str, Any]:
        guests.wait_for(self._events.fileno())
        try:
            text, self._received, _, _ = socket.recv_fds(self._events, _LARGEST_MESSAGE, _MOST_DESCRIPTORS)
            message = json.loads(text or b"{}")
        except ConnectionResetError:
            message = {}
        if kind not in message:
            self._bury_keeper()
            raise SandboxError(message.get("fault", "the keeper died"))
        return message[kind]

    def _bury_keeper(self) -> None:
        """It failed, or someone killed it: its contestant dies with it (PR_SET_PDEATHSIG), then what is in its groups.

        Without a PID namespace and without groups, what left its parents may survive this one accident.
        """
        self._events.close()
        self._control.close()
        if self._guest >= 0:  # The kernel kills it with the first process of its namespace, once it is thawed.
            guests.forget(self._guest)
        with contextlib.suppress(ProcessLookupError):
            if self._keepers_pidfd >= 0:
                signal.pidfd_send_signal(self._keepers_pidfd, signal.SIGKILL)
            elif self.keeper:
                os.kill(self.keeper, signal.SIGKILL)
        if self.keeper:
            self._wait_keeper()
        until = time.monotonic() + 2
        while any(folder.exists() for folder in self._groups) and time.monotonic() < until:
            for folder in self._groups:
                with contextlib.suppress(OSError):
                    inside = map(int, (folder / "cgroup.procs").read_text().split())
                    processes.send(filter(None, inside), signal.SIGKILL)  # 0: one that we cannot see
                    if (folder / "freezer.state").exists():
                        (folder / "freezer.state").write_text("THAWED")
                    folder.rmdir()
            time.sleep(0.005)
