"""Fork servers as the judge holds them: one process of each flavour, from which hosted processes are forked.

Those that are started together are executed once: the first imports what all of them import, and forks the others. From
then on each has a life of its own, and one that dies is replaced alone.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kerneldojo import devices
from kerneldojo.contestant.forkserver import last_line
from kerneldojo.contestant.scratch import own_folder
from kerneldojo.contestant.wire import Channel, ChannelClosed, WireError, channel_pair
from kerneldojo.devices import visible
from kerneldojo.judging.ends import Infrastructure
from kerneldojo.judging.grandchild import Grandchild

START_SECONDS = 180.0
"""A cold fork server imports torch and Triton and compiles a kernel; on a busy machine that takes a while."""

BOOTSTRAP = (
    "import os, sys; sys.path[:] = {path!r}; from kerneldojo.contestant.births import main; "
    "main(*{servers!r}); os._exit(0)"
)
"""It ends at once: taking apart whatever was imported is a quarter of a second that who closes it waits for."""

FEW_QUEUES = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
"""One hardware queue for each process hosted on a GPU: contexts are what it cannot make many of, and most of the making
is for queues (on an H200 with 16 at once: 334 contexts a minute with the default of 8, 918 with one). All sides have
the same; a candidate's streams may wait for each other where they would not with more."""

log = logging.getLogger(__name__)


class ForkServer:
    """A fork server process of one flavour; started on first use, replaced when it dies."""

    def __init__(self, flavour: str, environment: Mapping[str, str] | None = None) -> None:
        self.flavour = flavour
        self.environment = dict(environment or {})
        """What it has beside the usual."""
        self.features: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | Grandchild | None = None
        """None also until one that another forks has said that it was born."""
        self._control: Channel | None = None
        self._ready = False
        self._num_deaths = 0
        atexit.register(self.close)

    @property
    def num_deaths(self) -> int:
        """How often it has ended by itself after it was warm; does not wait for one that is being started.

        A process that is killed closes its channels before it can be waited for, and whoever has seen that one of its
        contestants has lost it may ask at once.
        """
        process, control = self._process, self._control
        has_ended = process is not None and process.poll() is not None
        is_dead = self._ready and (has_ended or (control is not None and control.is_closed()))
        return is_dead + self._num_deaths  # In this order: meanwhile it may be counted, and then is not dead any more.

    def start(self) -> None:
        """Start it without waiting until it is warm."""
        self.start_together(self)

    def wait_ready(self) -> None:
        """Wait until it is warm.

        Raises:
            Infrastructure: it did not come up.
        """
        with self._lock:
            self._wait_ready()

    @staticmethod
    def start_together(*servers: ForkServer) -> None:
        """Start those that do not run, without waiting until they are warm.

        Args:
            servers: of different flavours and one environment; they are born in the order in which they are named.
        """
        with contextlib.ExitStack() as stack:
            for server in servers:
                stack.enter_context(server._lock)
            ForkServer._launch([server for server in servers if server._is_down()])

    @staticmethod
    def _launch(servers: Sequence[ForkServer]) -> None:
        """Execute the first, which forks the others; who calls has their locks."""
        if not servers:
            return
        births: list[tuple[str, socket.socket]] = []
        for server in servers:
            server._shut()
            server._control, theirs = channel_pair()
            births.append((server.flavour, theirs))
        path = [entry for entry in sys.path if entry]
        told = [(flavour, theirs.fileno()) for flavour, theirs in births]
        servers[0]._process = subprocess.Popen(
            [sys.executable, "-s", "-c", BOOTSTRAP.format(path=path, servers=told)],
            pass_fds=[fd for _, fd in told],
            env=servers[0]._surroundings(),
            stdin=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        for _, theirs in births:
            theirs.close()

    def _surroundings(self) -> dict[str, str]:
        """Its environment."""
        return {
            "PATH": os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin"),
            "LANG": "C.UTF-8",
            "HOME": "/nonexistent",
            "TMPDIR": str(own_folder()),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # Asking whether CUDA is there must not initialise it.
            **self.environment,
        }

    def _wait_ready(self) -> None:
        if self._is_down():
            self._launch([self])
        if self._ready:
            return
        assert self._control is not None
        try:
            message = self._control.receive(START_SECONDS)
            if "born" in message:
                self._meet(message["born"])
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

    def _is_down(self) -> bool:
        """Whether it was not started, or has ended."""
        if self._process is not None and self._process.poll() is not None:
            return True
        return self._control is None or self._control.is_closed()

    def _meet(self, pid: int) -> None:
        """Hold the process that says it was born, if it is not held already."""
        if self._process is None and self._control is not None:
            with contextlib.suppress(ProcessLookupError):
                process = Grandchild(pid)
                if self._control.is_closed():  # It ended before it was held: the id may be another's.
                    process.release()
                else:
                    self._process = process

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
                    self._shut(has_died=True)
                    if attempt == 2:
                        raise Infrastructure(f"the {self.flavour} fork server died") from None
                except WireError as error:
                    raise Infrastructure(f"the {self.flavour} fork server does not listen: {error}") from None

    def learn(self, launchers: Sequence[Sequence[str]]) -> None:
        """Have launchers made for signatures of these types, for whatever is spawned later; waits for nothing."""
        with self._lock, contextlib.suppress(WireError):  # If it died, the next one has to learn them anew.
            if launchers and self._ready and self._control is not None:
                self._control.send({"op": "learn", "launchers": [list(types) for types in launchers]})

    def close(self) -> None:
        """Let it end, and with it everything that it spawned."""
        with self._lock:
            self._shut()

    def _shut(self, *, has_died: bool = False) -> None:
        if self._ready and (has_died or self._is_down()):
            self._num_deaths += 1
        self._ready = False
        if self._process is None and self._control is not None:  # It may have said that it was born.
            with contextlib.suppress(WireError):
                if self._control.has_frame(0) and "born" in (message := self._control.receive(0.1)):
                    self._meet(message["born"])
        control, self._control = self._control, None
        process, self._process = self._process, None
        if control is not None:
            control.close()
        if process is not None:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class HostServers:
    """The two fork servers of devices that are no GPU, one that interprets kernels and one that compiles them."""

    def __init__(self) -> None:
        self.interpreting = ForkServer("interpret")
        self.compiling = ForkServer("compile")

    def start(self) -> None:
        """Begin to warm up without waiting."""
        ForkServer.start_together(self.interpreting, self.compiling)

    def close(self) -> None:
        """End both, and everything that they forked."""
        self.compiling.close()
        self.interpreting.close()  # Last: it may have forked the other, and sees to what is left of it.


def gpu_server(uuid: str) -> ForkServer:
    """A fork server for what runs on one GPU; not started."""
    return ForkServer("cuda", {"CUDA_VISIBLE_DEVICES": uuid, **FEW_QUEUES})


@dataclass(frozen=True)
class Begun:
    """Fork servers that warm up while whoever judges is imported, which takes seconds."""

    hosts: HostServers | None = None
    gpu: ForkServer | None = None

    @classmethod
    def ahead(cls, device: str) -> Begun:
        """Begin those that a device needs; for a GPU none where nothing but PyTorch tells which one is meant.

        Raises:
            ValueError: an unknown device.
        """
        chosen = devices.parse(device)
        if chosen.kind != "cuda":
            begun = cls(hosts=HostServers())
        elif uuid := visible.uuid(chosen.index):
            begun = cls(gpu=gpu_server(uuid))
        else:
            return cls()
        begun.start()
        return begun

    def start(self) -> None:
        """Begin to warm up without waiting."""
        if self.hosts is not None:
            self.hosts.start()
        if self.gpu is not None:
            self.gpu.start()
