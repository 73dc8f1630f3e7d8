"""Clients that send no request, or never the end of one, over real sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from kerneldojo.service.connections import Connection

HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


class Impatient(Connection):
    head_seconds = 0.3


async def echo(scope: dict[str, Any], receive: Any, send: Any) -> None:
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    body = str(size).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    config = uvicorn.Config(echo, port=0, http=Impatient, log_level="critical", lifespan="off", timeout_keep_alive=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


def answer(port: int, *parts: bytes) -> bytes:
    """What comes back until the service hangs up."""
    found = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        try:
            for part in parts:
                connection.sendall(part)
            while data := connection.recv(1 << 16):
                found += data
        except ConnectionError:
            pass
    return found


def test_a_head_without_end_is_refused(port: int) -> None:
    one_long_field = answer(port, HEAD + b"X: ", *[b"a" * 100_000] * 50)
    many_fields = answer(port, HEAD, *[b"X: a\r\n" * 10_000] * 50)
    assert all(b" 431 " in found or found == b"" for found in (one_long_field, many_fields))


def test_so_is_a_trailer(port: int) -> None:
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert b" 200 " not in answer(port, head, b"1\r\na\r\n0\r\n", *[b"X: a\r\n" * 10_000] * 50)


def test_a_long_body_is_none_of_that(port: int) -> None:
    body = b"x" * 1_000_000
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    assert answer(port, head, b"Content-Length: 1000000\r\n\r\n", body).endswith(b"\r\n\r\n1000000")
    chunks = b"".join(b"1\r\nx\r\n" for _ in range(200_000))
    assert answer(port, head, b"Transfer-Encoding: chunked\r\n\r\n", chunks, b"0\r\n\r\n").endswith(b"\r\n\r\n200000")


@pytest.mark.parametrize("sent", [b"", HEAD, HEAD + b"\r\n", HEAD + b"\r\n" + HEAD])
def test_who_sends_no_request_is_hung_up_on(port: int, sent: bytes) -> None:
    assert answer(port, sent).count(b" 200 ") == sent.count(b"\r\n\r\n")
