"""The gate before every request: who asks, how much they send, and what leaves if we fail.

An ASGI middleware, outside of everything else. Whatever a handler raises ends here as a 500 with an id and one line;
the traceback goes to the log under the same id and nowhere else.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import secrets
from contextlib import suppress
from typing import Any

from prometheus_client import Counter
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kerneldojo.service.bodies import BODY_SECONDS
from kerneldojo.service.config import ServiceConfig, is_loopback
from kerneldojo.service.dashboard import PATHS
from kerneldojo.service.records import Problematic
from kerneldojo.service.tokens import NAME, find_client, sees_all
from kerneldojo.service.viewer import Viewer

log = logging.getLogger(__name__)

OPEN_PATHS = {"/health", *PATHS}
"""Answered without a token: load balancers and trainers ask for health first, and it tells no names but devices'; the
dashboard's files hold no data."""

CLIENT_HEADER = b"x-dojo-client"
"""Where there are no tokens: the name of the queue that a request's tasks go to."""


MOST_DISCARDED = 4
"""Times the longest body: of a longer one the rest is not waited for before it is refused."""


class _TooLarge(Exception):
    pass


class _TooManyBytes(Exception):
    pass


class Gate:
    """Checks the host, the token and the size of a request before it is let in."""

    def __init__(self, app: ASGIApp, config: ServiceConfig, requests: Counter) -> None:
        self._app = app
        self._config = config
        self._requests = requests
        self._in_hand = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or one web socket."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        refusal = self._refusal(scope, headers)
        if scope["type"] == "websocket":
            if refusal is not None:
                await receive()
                await send({"type": "websocket.close", "code": 1008, "reason": refusal[1][:100]})
                return
            await self._app(scope, receive, send)
            return
        await self._http(scope, headers, receive, send, refusal)

    async def _http(
        self,
        scope: Scope,
        headers: dict[bytes, bytes],
        receive: Receive,
        send: Send,
        refusal: tuple[int, str, dict[str, str]] | None,
    ) -> None:
        request_id = secrets.token_hex(8)
        started: list[int] = []

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                started.append(message["status"])
                message["headers"] = [*message.get("headers", []), (b"x-request-id", request_id.encode())]
            await send(message)

        body = _Body(self, receive)
        try:
            if refusal is None:
                await self._app(scope, body.receive, tell)
            else:
                if refusal[0] == 413 and self._is_sent_soon(headers):
                    await self._discard(receive, 0)
                await _answer(tell, *refusal)
        except _TooLarge:
            await self._discard(receive, body.num_bytes)
            await _answer(tell, 413, f"a body has at most {self._config.max_body_bytes} bytes", {"connection": "close"})
        except _TooManyBytes:
            await _answer(tell, 429, "too many bytes are being received", {"retry-after": "1", "connection": "close"})
        except ClientDisconnect:
            # It hung up amid its body: there is nobody to answer, and nothing of ours is at fault.
            pass
        except Exception:
            log.exception("request %s (%s %r) failed", request_id, scope["method"], scope["path"][:200])
            if started:
                raise
            await _answer(tell, 500, "a fault of ours; the log has more under this id", {}, request_id)
        finally:
            self._in_hand -= body.num_bytes
            self._requests.labels(method=_known(scope["method"]), code=str(started[0] if started else 499)).inc()

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes]) -> tuple[int, str, dict[str, str]] | None:
        config = self._config
        if not config.tokens:
            # Without tokens the address is loopback; a page in a browser could still reach it under a name of its own.
            host = headers.get(b"host", b"localhost").decode("latin-1")
            if not is_loopback(_without_port(host)):
                return 421, "without a token this service answers only to localhost", {}
            name = headers.get(CLIENT_HEADER, b"default").decode("latin-1")
            if not NAME.fullmatch(name):
                return 400, "X-Dojo-Client has letters, digits, dots, dashes and underscores, at most 64", {}
            scope["dojo.client"] = name
        else:
            client = find_client(config.tokens, _presented(headers.get(b"authorization", b"")))
            if client is None and scope["path"] not in OPEN_PATHS:
                return 401, "a valid token is needed", {"www-authenticate": 'Bearer, Basic realm="dojo"'}
            scope["dojo.client"] = client or "anonymous"
        scope["dojo.viewer"] = Viewer(scope["dojo.client"], sees_all(config.tokens, scope["dojo.client"]))
        if (not config.tokens or scope["type"] == "websocket") and not _is_own_page(headers):
            return 403, "pages of other sites may not ask here", {}
        length = headers.get(b"content-length", b"0")
        if not length.isdigit():
            return 400, "Content-Length is not a number", {"connection": "close"}
        if len(length) > 18 or int(length) > config.max_body_bytes:
            return 413, f"a body has at most {config.max_body_bytes} bytes", {"connection": "close"}
        return None

    def _is_sent_soon(self, headers: dict[bytes, bytes]) -> bool:
        """Whether a body that is too long comes unasked, and is short enough to be waited for."""
        length = headers.get(b"content-length", b"0")
        return len(length) <= 18 and int(length) <= self._most_discarded and b"expect" not in headers

    async def _discard(self, receive: Receive, num_bytes: int) -> None:
        """Wait for the end of a body, `num_bytes` of which are here, and keep nothing of it; not for ever.

        Whoever is hung up on amid a body loses the answer: for bytes that nobody reads the connection is reset, and the
        client cannot tell a service that refuses from one that is gone.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(BODY_SECONDS):
                while num_bytes <= self._most_discarded:
                    message = await receive()
                    num_bytes += len(message.get("body", b""))
                    if not message.get("more_body", False):
                        break

    @property
    def _most_discarded(self) -> int:
        return MOST_DISCARDED * self._config.max_body_bytes

    def take(self, num_bytes: int) -> None:
        """Account for bytes that were received."""
        self._in_hand += num_bytes
        if self._in_hand > self._config.max_bodies_bytes:
            raise _TooManyBytes

    @property
    def max_body_bytes(self) -> int:
        """Longest body of one request."""
        return self._config.max_body_bytes


class _Body:
    """Counts what one request sends, whatever its headers say."""

    def __init__(self, gate: Gate, receive: Receive) -> None:
        self._gate = gate
        self._receive = receive
        self.num_bytes = 0

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            size = len(message.get("body", b""))
            self.num_bytes += size
            if self.num_bytes > self._gate.max_body_bytes:
                self._gate.take(size)
                raise _TooLarge
            self._gate.take(size)
        return message


async def _answer(send: Send, code: int, detail: str, headers: dict[str, str], request_id: str = "") -> None:
    body = Problematic(detail=detail, request_id=request_id).model_dump_json().encode()
    raw: list[Any] = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    raw += [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": code, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def _presented(authorization: bytes) -> bytes:
    """The token in an Authorization header: a bearer token, or the password of Basic (what a URL can carry)."""
    scheme, _, value = authorization.partition(b" ")
    if scheme.lower() == b"bearer":
        return value.strip()
    if scheme.lower() == b"basic":
        try:
            return base64.b64decode(value.strip(), validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""


def _is_own_page(headers: dict[bytes, bytes]) -> bool:
    """Whether a request comes from a page of this service, or from no page: a browser always names another's origin."""
    origin = headers.get(b"origin")
    return origin is None or origin.partition(b"://")[2] == headers.get(b"host", b"")


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def _known(method: str) -> str:
    return method if method in {"GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "PATCH"} else "other"
