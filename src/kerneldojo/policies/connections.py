"""Clients for one endpoint, of which each has few requests under way.

A client of the `openai` package looks at every one of its connections when a request begins and again when it ends,
asks the kernel about those that are idle, and keeps at most a hundred of these. With hundreds of requests at once that
is most of what a request costs; and where many answers come together, connections are closed only to be made again,
TLS and all, when the next prompts are ready. Clients of few connections each do neither. They are made as they are
needed, and share the certificates, which take far longer to read than all the rest.
"""

from __future__ import annotations

import importlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import openai

REQUESTS_PER_CLIENT = 16
"""At most so many requests are under way through one client; far fewer than the idle connections that it keeps."""


class Clients:
    """Clients that are set up alike."""

    def __init__(self, **settings: Any) -> None:
        """Prepare clients, the first of them at once; `settings` are those of `openai.AsyncOpenAI`."""
        self._settings = settings
        self._clients: list[openai.AsyncOpenAI] = []
        self._free: list[openai.AsyncOpenAI] = []
        # What openai speaks HTTP with: httpx, or from openai 3 on httpx2.
        http: Any = importlib.import_module(openai.DefaultAsyncHttpxClient.__base__.__module__)
        self._certificates = http.create_ssl_context()
        self._add()

    @contextmanager
    def one(self) -> Generator[openai.AsyncOpenAI]:
        """A client for one request; of those with room the one that was used last, whose connections are warm."""
        if not self._free:
            self._add()
        client = self._free.pop()
        try:
            yield client
        finally:
            self._free.append(client)

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients:
            await client.close()

    def _add(self) -> None:
        http = openai.DefaultAsyncHttpxClient(verify=self._certificates)
        client = openai.AsyncOpenAI(**self._settings, http_client=http)
        self._clients.append(client)
        self._free.extend([client] * REQUESTS_PER_CLIENT)
