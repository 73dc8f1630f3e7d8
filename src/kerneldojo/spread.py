"""Requests spread over clients of few connections each.

A client that speaks HTTP looks at every one of its connections when a request begins and again when it ends, and
compares them with every request that waits for one. With hundreds of requests at once that is most of what a request
costs, with a thousand a process does nothing else. Clients of few connections each cost next to nothing, and are made
as they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")

REQUESTS_EACH = 16
"""At most so many requests are under way through one client; far fewer than the idle connections that it keeps."""


class Spread(Generic[T]):
    """Clients that are set up alike, for one event loop."""

    def __init__(self, make: Callable[[], T]) -> None:
        """The first client is made at once, so that what it is made of is checked."""
        self._make = make
        self.all: list[T] = []
        """Every client, to be closed."""
        self._free: list[T] = []
        self._add()

    @contextmanager
    def one(self) -> Generator[T]:
        """A client for one request; of those with room the one that was used last, whose connections are warm."""
        if not self._free:
            self._add()
        client = self._free.pop()
        try:
            yield client
        finally:
            self._free.append(client)

    def _add(self) -> None:
        client = self._make()
        self.all.append(client)
        self._free.extend([client] * REQUESTS_EACH)
