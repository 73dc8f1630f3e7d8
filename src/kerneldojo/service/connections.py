"""Connections before there is a request: how long a head may take, and how long it may be.

Whoever can reach the port has not shown a token yet while they send a request's head, and the server below gathers it
without a limit of its own: so its length and its time are limited here. What follows a head is the gate's to count.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kerneldojo.service.records import Problematic

MAX_HEAD_BYTES = 64 << 10
"""Longest head or trailer that comes in pieces; a longer one is refused with 431. A piece has 256 KiB at most."""

HEAD_SECONDS = 30.0
"""How long a client may take to send a head, from when it connected or, on a connection that is kept, from when that
would have been closed for idleness."""

TOO_LONG = "the request's head is too long"


class Connection(HttpToolsProtocol):
    """One connection to a client."""

    head_seconds = HEAD_SECONDS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected: its first head is awaited."""
        super().connection_made(transport)
        self._in_vain = 0
        self._has_advanced = False
        self._deadline: asyncio.TimerHandle | None = None
        self._await_head(self.head_seconds)

    def data_received(self, data: bytes) -> None:
        """Bytes that complete neither a head nor a part of a body are only gathered: so many, and no more."""
        self._has_advanced = False
        super().data_received(data)
        self._in_vain = 0 if self._has_advanced else self._in_vain + len(data)
        if self._in_vain > MAX_HEAD_BYTES and not self.transport.is_closing():
            if self._is_idle():
                self._refuse(b"431 Request Header Fields Too Large", TOO_LONG)
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP: said like every other failure."""
        self._refuse(b"400 Bad Request", msg)
        self.transport.close()

    def _refuse(self, status: bytes, detail: str) -> None:
        body = Problematic(detail=detail).model_dump_json().encode()
        fields = b"connection: close\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(b"HTTP/1.1 " + status + b"\r\n" + fields + body)

    def on_headers_complete(self) -> None:
        """A head is here."""
        self._has_advanced = True
        self._cancel_deadline()
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        """A part of a body has begun."""
        self._has_advanced = True

    def on_body(self, body: bytes) -> None:
        """Some of a body is here."""
        self._has_advanced = True
        super().on_body(body)

    def on_response_complete(self) -> None:
        """A request was answered: the next head is awaited, if it is not here already."""
        super().on_response_complete()
        if self._is_idle():
            self._await_head(self.timeout_keep_alive + self.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._cancel_deadline()
        super().connection_lost(exc)

    def _is_idle(self) -> bool:
        """Whether no request is being served: uvicorn's cycle is that of the newest head."""
        cycle = self.cycle
        return cycle is None or cycle.response_complete  # type: ignore[redundant-expr]

    def _await_head(self, seconds: float) -> None:
        self._cancel_deadline()
        self._deadline = self.loop.call_later(seconds, self.transport.close)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
