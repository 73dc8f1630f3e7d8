"""Connections of the client that awaits: a few to each pool (`kerneldojo.spread`), and so many in all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import httpx

from kerneldojo.spread import REQUESTS_EACH, Spread

MOST_REQUESTS = 512
"""Under way at once; others wait for one to end. Each has a file descriptor, of which a process often has 1024."""
MOST_WAITING = 448
"""Of these such as wait for verdicts, half a minute each: what is answered at once must not stand behind them."""
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=REQUESTS_EACH, keepalive_expiry=60.0)


class Pools:
    """Clients that are set up alike, for one event loop."""

    def __init__(self, settings: dict[str, Any]) -> None:
        """`settings` are those of `httpx.AsyncClient`. Certificates take longer to read than all the rest: once."""
        certificates = httpx.create_ssl_context(trust_env=settings["trust_env"])
        arguments: dict[str, Any] = settings | {"limits": LIMITS, "verify": certificates}
        self._clients = Spread(lambda: httpx.AsyncClient(**arguments))
        self._room = asyncio.Semaphore(MOST_REQUESTS)
        self._waiting = asyncio.Semaphore(MOST_WAITING)

    @asynccontextmanager
    async def one(self, *, waits: bool = False) -> AsyncGenerator[httpx.AsyncClient]:
        """A client for one request; `waits` if the service answers it only when there is something to tell."""
        async with self._waiting if waits else nullcontext(), self._room:
            with self._clients.one() as client:
                yield client

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients.all:
            await client.aclose()
