"""Clients that send no request, or never the end of one, over real sockets."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from service_app import order
from service_executors import TextExecutor
from service_process import ServiceProcess, becomes

from kerneldojo import AsyncClient, Candidate, Problem, Status
from kerneldojo.client import ClientExecutor, Refused
from kerneldojo.schema import Job
from kerneldojo.service import ServiceConfig, create_app, gate
from kerneldojo.service.connections import Connection
from kerneldojo.service.core import Service

TASK = {"task_id": "y", "reference_code": "x", "kernel_code": "wait", "entry_point": "Model", "timeout": 300}

ABANDONED: dict[str, Any] = {
    "/evaluate": TASK,
    "/evaluate/batch": {"batch_id": "b", "tasks": [TASK], "max_concurrent": 1},
    "/v1/tasks/x?wait=60": None,
}
"""What one may wait for, by where it is asked: a task of its own, or one that is there."""

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


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", HEAD + b"nonsense\r\n\r\n"]
)
def test_what_is_no_http_is_refused_like_everything_else(port: int, sent: bytes) -> None:
    head, _, body = answer(port, sent).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n") and b"content-type: application/json" in head
    assert json.loads(body) == {"detail": "Invalid HTTP request received.", "request_id": ""}


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


def test_health_is_told_to_who_asks_for_its_head(tmp_path: Path) -> None:
    """As balancers of load do; over a real connection, on which no body may follow."""
    with ServiceProcess(tmp_path) as service, httpx.Client(base_url=service.url) as http:
        head, whole = http.head("/health"), http.get("/health")
        assert head.status_code == whole.status_code == 200
        assert not head.content and head.headers["content-type"] == whole.headers["content-type"]
        assert http.head("/v1/tasks").status_code == 405


def test_connections_without_end_cost_no_task_its_verdict(tmp_path: Path) -> None:
    """Whoever reaches the port can use up the files that a process may have open, token or not."""
    with (
        ServiceProcess(tmp_path, limit="-n 100") as service,
        httpx.Client(base_url=service.url) as kept,
        ExitStack() as stack,
    ):
        assert kept.get("/health").status_code == 200
        address = ("127.0.0.1", int(service.url.rpartition(":")[2]))
        refused = 0
        while refused == 0:
            connection = stack.enter_context(socket.create_connection(address, timeout=0.02))
            try:
                refused += connection.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionResetError:
                refused += 1
        assert kept.post("/v1/tasks", json=order("passed", id="a")).status_code == 202
        assert kept.get("/v1/tasks/a?wait=30").json()["status"] == "passed"


def test_a_service_has_files_for_all_requests_that_may_wait(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path, limit="-Sn 256") as service:
        limits = Path(f"/proc/{service.process.pid}/limits").read_text()
    ((soft, hard),) = re.findall(r"Max open files +(\d+) +(\d+)", limits)
    assert int(soft) >= min(4096, int(hard))


@pytest.mark.parametrize("path", ABANDONED)
def test_whoever_hangs_up_gives_the_place_to_wait_back(tmp_path: Path, path: str) -> None:
    with listening(tmp_path) as (service, url):
        httpx.post(url + "/v1/tasks", json=order("wait", id="x")).raise_for_status()
        body = json.dumps(ABANDONED[path]).encode()
        method, port = "GET" if ABANDONED[path] is None else "POST", int(url.rpartition(":")[2])
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        # Who hangs up by the clock may have lost the place before anybody has looked whether it had one.
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            assert becomes(lambda: len(service.waiters) == 1, 10.0), "it waits"
        assert becomes(lambda: len(service.waiters) == 0, 10.0), "it waits although nobody is there"
        assert becomes(lambda: service.states["running"] == (1 if method == "GET" else 2)), "what was asked is judged"


LONG = 100_000
"""Longest body, in bytes, of a service below."""


def test_that_a_job_is_too_long_is_heard_by_who_waits_on_an_event_loop(tmp_path: Path) -> None:
    """And not that the service is gone, for which one would wait ten minutes."""

    async def refused(url: str, num_bytes: int) -> str:
        async with AsyncClient(url) as client:
            with pytest.raises(Refused) as caught:
                await client.judge(Problem(name="p", source="x"), Candidate(source="x" * num_bytes))
            return str(caught.value)

    most = 2_000_000  # What is far shorter is in the buffers between both before anybody is hung up on.
    with listening(tmp_path, max_body_bytes=most) as (service, url):
        for num_bytes in (most, 3 * most, 4 * most - 1000) * 4:
            assert asyncio.run(refused(url, num_bytes)) == f"413: a body has at most {most} bytes"
        with ClientExecutor(url) as executor:
            job = Job(problem=Problem(name="p", source="x"), candidate=Candidate(source="x" * 3 * most))
            told = [future.result(30) for future in [executor.submit(job) for _ in range(20)]]
        assert {one.status for one in told} == {Status.INFRASTRUCTURE_ERROR}
        assert all("413: a body has at most" in one.message for one in told)
        assert not service.states


@pytest.mark.parametrize("patience", [1.0, 60.0])
def test_a_body_that_is_too_long_is_waited_for_within_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    monkeypatch.setattr(gate, "BODY_SECONDS", patience)
    head = b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    chunk = b"2710\r\n" + b"x" * 10_000 + b"\r\n"
    with listening(tmp_path, max_body_bytes=LONG) as (_, url):
        port = int(url.rpartition(":")[2])

        def seconds(fields: bytes, *parts: bytes) -> float:
            began = time.monotonic()
            assert b" 413 " in answer(port, head + fields + b"\r\n", *parts)
            return time.monotonic() - began

        if patience == 1.0:  # They never end.
            assert seconds(b"Content-Length: 300000\r\n", b"x" * 200_000) > 0.9
            assert seconds(b"Transfer-Encoding: chunked\r\n", chunk * 20) > 0.9
        else:  # These do, or are not waited for; whoever waits for an answer does so for twenty seconds.
            seconds(b"Content-Length: 300000\r\n", b"x" * 300_000)
            seconds(b"Content-Length: 400001\r\n")
            seconds(b"Content-Length: 300000\r\nExpect: 100-continue\r\n")
            seconds(b"Transfer-Encoding: chunked\r\n", chunk * 20, b"0\r\n\r\n")


def test_what_is_too_long_is_not_kept(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path) as service:
        status = Path(f"/proc/{service.process.pid}/status")
        port = int(service.url.rpartition(":")[2])
        head = b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"

        def peak() -> int:
            """Most memory that the service has ever had, in MiB."""
            return int(re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())[0]) >> 10

        answer(port, head % 2 + b"{}" + HEAD + b"Connection: close\r\n\r\n")
        before = peak()
        assert b" 413 " in answer(port, head % (120 << 20), *[b"x" * (1 << 20)] * 120)
        assert peak() - before < 10


@contextmanager
def listening(folder: Path, **settings: Any) -> Iterator[tuple[Service, str]]:
    """A whole service behind a real socket, in a thread."""
    executor = TextExecutor()
    app = create_app(ServiceConfig(store=folder / "store.db", **settings), executor)
    server = uvicorn.Server(uvicorn.Config(app, port=0, http=Connection, log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield app.state.service, f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        executor.release.set()
        server.should_exit = True
        thread.join()
