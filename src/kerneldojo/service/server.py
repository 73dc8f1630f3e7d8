"""Running the application: uvicorn, with a drain between SIGTERM and the end.

The first SIGTERM or SIGINT starts the drain: requests are still answered, new work is refused with 503, and what runs
may finish within the grace time. A second one ends that. Either way nothing is lost: what was not judged is judged
after the next start.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import sys
from collections.abc import Callable, Sequence
from types import FrameType

import uvicorn
from fastapi import APIRouter

from kerneldojo.pool.executor import Executor
from kerneldojo.service.app import create_app
from kerneldojo.service.config import ServiceConfig
from kerneldojo.service.connections import Connection
from kerneldojo.service.core import Service

KEEP_ALIVE_SECONDS = 75
"""Longer than clients keep idle connections, so that it is they who close them."""

SWITCH_SECONDS = 0.0002
"""How long one thread may keep the interpreter from another."""

MAX_FRAME_BYTES = 4 << 20
"""Longest frame of a web socket."""

BACKLOG = 2048
"""Connections that may wait to be accepted."""

OTHER_FILES = 1024
"""Open files beside those of requests that wait."""

CLOSE_SECONDS = 5
"""After the drain: how long open connections may take to end."""


class Server(uvicorn.Server):
    """Uvicorn's server, with a drain."""

    def __init__(self, config: uvicorn.Config, service: Service, announce: Callable[[str], None]) -> None:
        super().__init__(config)
        self._service = service
        self._announce = announce
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the store, listen, and say where."""
        await super().startup(sockets)
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            self._announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """On a signal: drain; on the second one let go of what runs; on the third one do not even do that in order."""
        if not self.started:
            self.should_exit = True
        elif self._draining is None:
            self._draining = asyncio.get_running_loop().create_task(self._drain())
        elif not self._service.is_hurried:
            self._service.is_hurried = True
        else:
            self.force_exit = self.should_exit = True

    async def _drain(self) -> None:
        await self._service.drain()
        self.should_exit = True


def serve(
    config: ServiceConfig,
    executor: Executor,
    *,
    announce: Callable[[str], None] = lambda url: None,
    routers: Sequence[Callable[[Service], APIRouter]] = (),
    log_level: str = "warning",
) -> None:
    """Serve until a signal; owns the executor and closes it.

    Args:
        config: settings.
        executor: what judges.
        announce: called with the address once requests are answered.
        routers: see `create_app`.
        log_level: of uvicorn; access lines are off (they would hold ids, and outnumber the rest).

    Raises:
        ValueError: the address cannot be bound, or the store cannot be opened (one line).
    """
    _allow_files(config.max_waiting + OTHER_FILES)
    try:
        listener = _listen(config)
    except ValueError:
        executor.close(drain=False, patience=0.0)
        raise
    try:
        app = create_app(config, executor, routers)
    except ValueError:
        listener.close()
        executor.close(drain=False, patience=0.0)
        raise
    service: Service = app.state.service
    settings = uvicorn.Config(
        app,
        http=Connection,
        log_level=log_level,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=CLOSE_SECONDS,
        ws_max_size=min(config.max_body_bytes, MAX_FRAME_BYTES),
        ws_max_queue=2,
        backlog=BACKLOG,
    )
    # The journal's thread gives up the interpreter at every statement; with the usual 5 ms it would wait as long to get
    # it back from a busy event loop, and a group of some hundred statements would take a second.
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        service.open()
        Server(settings, service, announce).run(sockets=[listener])
    finally:
        listener.close()
        if not service.is_stopped:
            # It could not start, or was told twice to end: nothing that the executor started may be left behind.
            executor.close(drain=False, patience=0.0)


def _allow_files(number: int) -> None:
    """Let this process have so many open files, as far as that is its own to decide; many systems begin with 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < number:
        allowed = number if hard == resource.RLIM_INFINITY else min(number, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def _listen(config: ServiceConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((config.host.strip("[]"), config.port))
        # At once: while neither listens, two services can be bound to one port, and one would fail when it is ready.
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ValueError(f"cannot listen on {config.host}:{config.port}: {error.strerror or error}") from None
    listener.set_inheritable(False)
    return listener
