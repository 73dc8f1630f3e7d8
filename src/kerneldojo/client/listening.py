"""Reading one stream until it ends, and waiting where it broke: once by blocking, once by awaiting.

Whoever wants more than one answer has (`Feed.is_done`) calls again: the patience of the call is in its `Setback`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Generator
from typing import TypeVar

import httpx

from kerneldojo.client.attempts import Setback, passing_trouble
from kerneldojo.client.connection import STREAM_TIMEOUT, Absence
from kerneldojo.client.errors import ClientError, Overloaded
from kerneldojo.client.feed import Feed
from kerneldojo.client.pools import Pools

T = TypeVar("T")

ENDED_AT_ONCE = "the stream of results ended at once, though not all have ended"

REOPEN_SECONDS = 0.5
"""Pause before a stream is opened anew that had told something."""


def listen(http: httpx.Client, feed: Feed[T], setback: Setback, absence: Absence) -> Generator[T]:
    """What one answer tells.

    Raises:
        ClientError: it was refused, or cannot be had for longer than the setback is patient.
    """
    request, rest = feed.request(), _Rest(setback, absence)
    try:
        with http.stream(request.method, request.path, content=request.body, timeout=STREAM_TIMEOUT) as reply:
            if reply.status_code >= 400:
                reply.read()
            if (trouble := passing_trouble(reply)) is None:
                for data in reply.iter_bytes():
                    rest.hears()
                    yield from feed.take(data)
    except httpx.RequestError as error:
        trouble = rest.breaks(error)
    time.sleep(rest.seconds(trouble, feed.is_done))


async def listen_awaiting(pools: Pools, feed: Feed[T], setback: Setback, absence: Absence) -> AsyncGenerator[T]:
    """The same for an event loop."""
    request, rest = feed.request(), _Rest(setback, absence)
    try:
        async with (
            pools.one(waits=True) as http,
            http.stream(request.method, request.path, content=request.body, timeout=STREAM_TIMEOUT) as reply,
        ):
            if reply.status_code >= 400:
                await reply.aread()
            if (trouble := passing_trouble(reply)) is None:
                async for data in reply.aiter_bytes():
                    rest.hears()
                    for found in feed.take(data):
                        yield found
    except httpx.RequestError as error:
        trouble = rest.breaks(error)
    await asyncio.sleep(rest.seconds(trouble, feed.is_done))


class _Rest:
    """How long to rest after one answer."""

    def __init__(self, setback: Setback, absence: Absence) -> None:
        self._setback, self._absence = setback, absence
        self._is_heard = False
        self._lost: httpx.RequestError | None = None

    def hears(self) -> None:
        """Something came. Also where nothing has ended yet: a service that says so is there."""
        self._is_heard = True
        self._setback.forget()
        self._absence.ends()

    def breaks(self, error: httpx.RequestError) -> tuple[ClientError, float] | None:
        """The connection is gone."""
        self._lost = error
        return passing_trouble(error)

    def seconds(self, trouble: tuple[ClientError, float] | None, is_done: bool) -> float:
        """How long.

        Raises:
            ClientError: it has been so for too long.
        """
        if trouble is not None:
            seconds = self._setback.pause(*trouble).seconds
            if self._lost is not None:
                self._absence.begins(self._lost)
            return seconds
        if is_done:
            return 0.0
        # The stream ended early: the service drains, or something between that will never say more.
        return REOPEN_SECONDS if self._is_heard else self._setback.pause(Overloaded(ENDED_AT_ONCE)).seconds
