"""Clients for one endpoint, of which each has few requests under way (`kerneldojo.spread`).

A client of the `openai` package keeps at most a hundred idle connections, and asks the kernel about them again and
again; where many answers come together, others are closed only to be made again, TLS and all, when the next prompts are
ready. Clients of few connections each do neither, and share the certificates, which take far longer to read than all
the rest.
"""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from typing import Any

import openai

from kerneldojo.spread import REQUESTS_EACH as REQUESTS_PER_CLIENT
from kerneldojo.spread import Spread

__all__ = ["REQUESTS_PER_CLIENT", "Clients"]


class Clients:
    """Clients that are set up alike."""

    def __init__(self, **settings: Any) -> None:
        """Prepare clients, the first of them at once; `settings` are those of `openai.AsyncOpenAI`."""
        # What openai speaks HTTP with: httpx, or from openai 3 on httpx2.
        http: Any = importlib.import_module(openai.DefaultAsyncHttpxClient.__base__.__module__)
        certificates = http.create_ssl_context()

        def made() -> openai.AsyncOpenAI:
            return openai.AsyncOpenAI(**settings, http_client=openai.DefaultAsyncHttpxClient(verify=certificates))

        self._clients = Spread(made)

    def one(self) -> AbstractContextManager[openai.AsyncOpenAI]:
        """A client for one request; of those with room the one that was used last, whose connections are warm."""
        return self._clients.one()

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients.all:
            await client.close()
