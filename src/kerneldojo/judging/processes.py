"""The judge's grip on the processes it does not trust: fork servers, and sessions with what they spawn.

A `Session` is one contestant (or one reference runner) as the judge sees it: a door to send commands through, a leash
to kill it with, and an arena for tensors. Every command has a deadline; how a session may end is in `ends`.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kerneldojo.contestant.arena import HostArena
from kerneldojo.contestant.forkserver import last_line
from kerneldojo.contestant.sandbox.processes import descendants
from kerneldojo.contestant.wire import (
    Channel,
    ChannelClosed,
    DeadlinePassed,
    MalformedFrame,
    WireError,
    channel_pair,
)
from kerneldojo.judging.ends import Died, Infrastructure, Late, Tampered, failed

START_SECONDS = 180.0
"""A cold fork server imports torch and Triton and compiles a kernel; on a busy machine that takes a while."""

BOOTSTRAP = (
    "import sys; sys.path[:] = {path!r}; from kerneldojo.contestant.forkserver import main; main({flavour!r}, {fd})"
)

log = logging.getLogger(__name__)


class ForkServer:
    """A fork server process of one flavour; started on first use, replaced when it dies."""

    def __init__(self, flavour: str, environment: Mapping[str, str] | None = None) -> None:
        self.flavour = flavour
        self.features: dict[str, Any] = {}
        self._environment = dict(environment or {})
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: Channel | None = None
        self._ready = False
        atexit.register(self.close)

    def start(self) -> None:
        """Start it without waiting until it is warm."""
        with self._lock:
            self._start()

    def wait_ready(self) -> None:
        """Wait until it is warm.

        Raises:
            Infrastructure: it did not come up.
        """
        with self._lock:
            self._wait_ready()

    def _start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._control, theirs = channel_pair()
        path = [entry for entry in sys.path if entry]
        code = BOOTSTRAP.format(path=path, flavour=self.flavour, fd=theirs.fileno())
        environment = {
            "PATH": os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin"),
            "LANG": "C.UTF-8",
            "HOME": "/nonexistent",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # Asking whether CUDA is there must not initialise it.
            **({"TRITON_INTERPRET": "1"} if self.flavour == "interpret" else {}),
            **self._environment,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-s", "-c", code],
            pass_fds=[theirs.fileno()],
            env=environment,
            stdin=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        theirs.close()
        self._ready = False

    def _wait_ready(self) -> None:
        self._start()
        if self._ready:
            return
        assert self._control is not None
        try:
            message = self._control.receive(START_SECONDS)
        except WireError as error:
            self._shut()
            raise Infrastructure(f"the {self.flavour} fork server did not start: {error}") from None
        if "failed" in message:
            self._shut()
            log.error("the %s fork server did not start:\n%s", self.flavour, message["failed"])
            raise Infrastructure(f"the {self.flavour} fork server did not start: {last_line(message['failed'])}")
        self.features = message["features"]
        self._ready = True

    def spawn(self, request: dict[str, Any], fds: Sequence[int]) -> None:
        """Ask for a contestant; `fds` are its leash, its door and its arenas."""
        with self._lock:
            for attempt in (1, 2):
                self._wait_ready()
                assert self._control is not None
                try:
                    self._control.send({"op": "spawn", **request}, fds)
                    return
                except ChannelClosed:
                    self._shut()
                    if attempt == 2:
                        raise Infrastructure(f"the {self.flavour} fork server died") from None

    def close(self) -> None:
        """Let it end, and with it everything that it spawned."""
        with self._lock:
            self._shut()

    def _shut(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        self._ready = False


class Session:
    """One hosted process.

    Args:
        server: where it is forked.
        arena: memory shared with it; the session owns it from now on.
        request: what the sandbox allows: `readable`, `device_nodes`, `limits`, `environment`, `device`.
    """

    def __init__(self, server: ForkServer, arena: Any, request: dict[str, Any]) -> None:
        self.arena = arena
        self.server = server
        self.ended: dict[str, Any] | None = None
        self.measures: tuple[str, ...] = ()
        """What isolation holds; known once `wait_started` returned."""
        self._keeper = 0
        """Process id of its keeper, known with `measures`; everything that is hosted hangs below it."""
        self._number = 0
        self._answered = 0
        self._is_dying = False
        self._scratch = Path(tempfile.mkdtemp(prefix="dojo-"))
        self._door, their_door = channel_pair()
        self._leash, their_leash = channel_pair()
        try:
            fds = [their_leash.fileno(), their_door.fileno(), *arena.fds]
            server.spawn({**request, "scratch": str(self._scratch)}, fds)
        except BaseException:
            self._discard()
            raise
        finally:
            their_door.close()
            their_leash.close()

    def ask(self, operation: str, *, timeout: float, **fields: Any) -> dict[str, Any]:
        """Send a command and return its answer.

        Raises:
            HostedEnd: `Failed`, `Died`, `Late` or `Tampered`.
            Infrastructure: the process could not be started.
        """
        self.post(operation, **fields)
        return self.collect(timeout)

    def post(self, operation: str, **fields: Any) -> None:
        """Send a command; its answer is fetched with `collect`."""
        if self._door.is_closed():
            raise self._died()
        if self._door.has_unread():
            raise Tampered("it spoke without being asked")
        self._number += 1
        try:
            self._door.send({"op": operation, "number": self._number, **fields})
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

    def has_ended(self) -> bool:
        """Whether it ended by itself, as far as has been heard."""
        if self.ended is None and self._leash.has_unread():
            with contextlib.suppress(WireError):
                self._note(self._leash.receive(1.0))
        return self.ended is not None

    def is_idle(self) -> bool:
        """Whether it lives, has answered everything that it was asked, and has said nothing else."""
        if self.ended is not None or self._answered != self._number or self._door.has_unread():
            return False
        try:
            while self._leash.has_unread():
                self._note(self._leash.receive(1.0))
        except (WireError, Infrastructure):
            return False
        return self.ended is None

    def wait_started(self, timeout: float = 30.0) -> None:
        """Wait until the sandbox has closed around it."""
        while not self.measures and self.ended is None:
            self._note(self._leash.receive(timeout))

    def pids(self) -> list[int]:
        """Ids of its processes as they are now; none before it has started or once it has ended."""
        return descendants(self._keeper) if self._keeper and self.ended is None else []

    def freeze(self, timeout: float = 5.0) -> None:
        """Stop it from running until `thaw`."""
        self._order("freeze", timeout)

    def thaw(self, timeout: float = 5.0) -> None:
        """Let it run again."""
        self._order("thaw", timeout)

    def _order(self, order: str, timeout: float) -> None:
        self.wait_started()
        self._leash.send({"op": order})
        self._note(self._leash.receive(timeout))

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
        if "ended" in message:
            self.ended = message["ended"]

    def rest(self, resting: bool) -> None:
        """Say that nothing is asked of it for a while, so that nobody need watch it closely; or that work begins."""
        with contextlib.suppress(WireError):  # Whoever uses it next will find out that it is gone.
            self._leash.send({"op": "rest" if resting else "wake"})

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
        self.arena.close()
        shutil.rmtree(self._scratch, ignore_errors=True)


def host_arena(num_bytes: int) -> HostArena:
    """An arena in host memory, for the flavours without a GPU."""
    return HostArena.create(num_bytes)
