"""Fork servers as the judge holds them: one process of each flavour, from which hosted processes are forked."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from kerneldojo.contestant.forkserver import last_line
from kerneldojo.contestant.scratch import own_folder
from kerneldojo.contestant.wire import Channel, ChannelClosed, WireError, channel_pair
from kerneldojo.judging.ends import Infrastructure

START_SECONDS = 180.0
"""A cold fork server imports torch and Triton and compiles a kernel; on a busy machine that takes a while."""

BOOTSTRAP = (
    "import os, sys; sys.path[:] = {path!r}; from kerneldojo.contestant.forkserver import main; "
    "main({flavour!r}, {fd}); os._exit(0)"
)
"""It ends at once: taking apart whatever was imported is a quarter of a second that who closes it waits for."""

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
            "TMPDIR": str(own_folder()),
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
