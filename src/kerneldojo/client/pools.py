"""Connections of the client that awaits, a few to each pool.

Whenever a request begins or ends, what httpx speaks HTTP with looks at every connection of its pool, and compares them
with every request that waits for one: with a thousand verdicts waited for at once a process did nothing else. Pools of
few connections each cost next to nothing, are made as they are needed, and share the certificates, which take longer to
read than all the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx

REQUESTS_PER_POOL = 16
MOST_REQUESTS = 512
"""Under way at once; others wait for one to end. Each has a file descriptor, of which a process often has 1024."""
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=REQUESTS_PER_POOL, keepalive_expiry=60.0)


class Pools:
    """Clients that are set up alike, for one event loop."""

    def __init__(self, settings: dict[str, Any]) -> None:
        """`settings` are those of `httpx.AsyncClient`; the first one is made at once, so that they are checked."""
        certificates = httpx.create_ssl_context(trust_env=settings["trust_env"])
        self._settings: dict[str, Any] = settings | {"limits": LIMITS, "verify": certificates}
        self._all: list[httpx.AsyncClient] = []
        self._free: list[httpx.AsyncClient] = []
        self._room = asyncio.Semaphore(MOST_REQUESTS)
        self._add()

    @asynccontextmanager
    async def one(self) -> AsyncGenerator[httpx.AsyncClient]:
        """A client for one request; of those with room the one that was used last, whose connections are warm."""
        async with self._room:
            if not self._free:
                self._add()
            client = self._free.pop()
            try:
                yield client
            finally:
                self._free.append(client)

    async def close(self) -> None:
        """Close all connections."""
        for client in self._all:
            await client.aclose()

    def _add(self) -> None:
        client = httpx.AsyncClient(**self._settings)
        self._all.append(client)
        self._free.extend([client] * REQUESTS_PER_POOL)
