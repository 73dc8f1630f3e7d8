"""Start a contestant, and the handle by which its owner holds it.

    fork server ── keeper ──[ PID namespace: first process ── contestant ── whatever it starts ]

`launch` is called in the fork server: one thread, everything imported, nothing secret in memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kerneldojo.contestant.sandbox import processes
from kerneldojo.contestant.sandbox.features import Features
from kerneldojo.contestant.sandbox.filesystem import resolved
from kerneldojo.contestant.sandbox.keeper import keep
from kerneldojo.contestant.sandbox.policy import Ended, Policy, SandboxError

_LARGEST_MESSAGE = 4 << 20


def launch(main: Callable[[], None], policy: Policy, features: Features) -> Contained:
    """Fork a contestant that locks itself in and then calls `main`; returns once it is locked in.

    Args and what holds: see `begin`.

    Raises:
        SandboxError: a measure that the features promise could not be taken. Nothing is left running.
    """
    contained = begin(main, policy, features)
    contained.wait_enclosed()
    return contained


def begin(main: Callable[[], None], policy: Policy, features: Features) -> Contained:
    """`launch` without waiting: locking in takes tens of milliseconds, most of them waiting for the kernel.

    `fileno` becomes readable when it is locked in; `wait_enclosed` must be called before `result`. `main` runs in a
    fork of this process with all descriptors closed but `policy.keep_fds`, stdin at /dev/null, stdout and stderr
    captured; it ends with status 0 when `main` returns and 1 when it raises.

    Args:
        main: what to run; the first thing that may touch candidate code.
        policy: its world.
        features: what to use of the host, from `probe`.
    """
    resolved(policy.readable)  # Here, so that its forks find it done.
    events, keepers_events = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control, keepers_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (events, keepers_events):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LARGEST_MESSAGE)
    keeper = os.fork()
    if keeper == 0:
        keep(main, policy, features, keepers_events, keepers_control)
    keepers_events.close()
    keepers_control.close()
    return Contained(keeper, events, control)


class Contained:
    """One running contestant. Made by `launch` or `begin`; wait for `fileno`, then ask for `result`."""

    def __init__(self, keeper: int, events: socket.socket, control: socket.socket) -> None:
        self._events, self._control = events, control
        self.keeper = keeper
        """Process id of its keeper."""
        self._ended: Ended | None = None
        self._groups: list[Path] = []
        self.is_enclosed = False
        """Whether it is known to be locked in: `wait_enclosed` returned."""
        self.pid: int | None = None
        """Process id of the contestant as we see it, once enclosed; None if it ended before the keeper looked."""
        self.measures: tuple[str, ...] = ()
        """What isolation holds, once enclosed."""

    def wait_enclosed(self) -> None:
        """Wait until it is locked in and about to run `main`.

        Raises:
            SandboxError: it could not be locked in. Nothing is left running.
        """
        if self.is_enclosed:
            return
        ready = self._receive("ready")
        self._groups = [Path(folder) for folder in ready["groups"]]
        self.pid = ready["pid"]
        self.measures = tuple(ready["measures"])
        self.is_enclosed = True

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
            self._ended = Ended(**ended)
            os.waitpid(self.keeper, 0)
            self._events.close()
            self._control.close()
        return self._ended

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
        self._ask(b"freeze" if frozen else b"thaw")

    def wait_frozen(self) -> bool:
        """Wait until what `ask_to_freeze` asked for holds, once for each time. False if it has ended."""
        return self._answer() is not None

    def memory_bytes(self) -> int:
        """Host memory in use by all of its processes, in bytes; 0 if it has ended."""
        self._ask(b"memory")
        return int(self._answer() or 0)

    def _ask(self, what: bytes) -> None:
        if self._ended is None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._control.send(what)

    def _answer(self) -> bytes | None:
        if self._ended is not None:
            return None
        try:
            return self._control.recv(64) or None
        except ConnectionResetError:
            return None

    def _receive(self, kind: str) -> dict[str, Any]:
        try:
            message = json.loads(self._events.recv(_LARGEST_MESSAGE) or b"{}")
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
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.keeper, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.keeper, 0)
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
