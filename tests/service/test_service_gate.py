"""What stands before every request: hosts, tokens, sizes, back-pressure, and what leaves when we fail."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import logging
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from service_app import drive, order, running, until
from service_executors import TextExecutor

from kerneldojo.service import ServiceConfig
from kerneldojo.service.clients import MOST_CLIENTS
from kerneldojo.service.tokens import find_client, parse_tokens, read_tokens

SECRET = "correct-horse-battery"
TOKENS = parse_tokens(f"# who may ask\nalice:{SECRET}\n\nbob:{SECRET}-of-bob\n")


def test_other_addresses_than_loopback_need_a_token(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "127.8.0.1", "::1", "localhost"):
        ServiceConfig(store=tmp_path, host=host)
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.org", "localhost.example.org"):
        with pytest.raises(ValidationError, match="without a token"):
            ServiceConfig(store=tmp_path, host=host)
        ServiceConfig(store=tmp_path, host=host, tokens=TOKENS)


def test_tokens_are_read_strictly_and_never_shown(tmp_path: Path) -> None:
    assert [token.client for token in TOKENS] == ["alice", "bob"]
    assert SECRET not in repr(TOKENS) and SECRET not in TOKENS[0].model_dump_json(exclude={"digest"})
    assert find_client(TOKENS, SECRET.encode()) == "alice"
    assert find_client(TOKENS, b"") is None and find_client(TOKENS, SECRET.encode()[:-1]) is None
    for text in ("short", "a b:long enough for a token", f"name:{SECRET} with spaces", "name:"):
        with pytest.raises(ValueError, match="token line 1") as error:
            parse_tokens(text)
        assert text not in str(error.value)
    (tmp_path / "empty").write_text("# nothing\n")
    with pytest.raises(ValueError, match="holds no token"):
        read_tokens(tmp_path / "empty")


def test_requests_need_a_token_that_names_their_queue(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    basic = base64.b64encode(f"anyone:{SECRET}-of-bob".encode()).decode()
    wrong = ["", "Bearer", "Bearer nonsense", f"Basic {SECRET}", "Basic !!!", f"Digest {SECRET}", f"Bearer {SECRET}x"]

    async def test() -> None:
        async with running(tmp_path, tokens=TOKENS, host="0.0.0.0") as r:
            for value in wrong:
                refused = await r.http.get("/v1/tasks", headers={"Authorization": value, "Host": "anything"})
                assert refused.status_code == 401 and "Bearer" in refused.headers["www-authenticate"]
            assert (await r.http.get("/health")).status_code == 200
            for value, name in ((f"Bearer {SECRET}", "alice"), (f"Basic {basic}", "bob")):
                headers = {"Authorization": value, "X-Dojo-Client": "someone-else"}
                accepted = await r.http.post("/v1/tasks", json=order("passed"), headers=headers)
                record = await r.http.get(f"/v1/tasks/{accepted.json()['id']}", headers=headers)
                assert record.json()["client"] == name

    drive(test)
    assert SECRET not in caplog.text


def test_without_tokens_only_localhost_is_answered(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as r:
            for host, code in (("evil.example:8000", 421), ("127.0.0.1:8000", 200), ("[::1]:8000", 200), ("", 421)):
                assert (await r.http.get("/v1/tasks", headers={"Host": host})).status_code == code
            bad = await r.http.get("/v1/tasks", headers={"X-Dojo-Client": "a b"})
            assert bad.status_code == 400

    drive(test)


def test_a_web_page_cannot_post(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as r:
            simple = await r.http.post("/v1/tasks", content=b"{}", headers={"Content-Type": "text/plain"})
            assert simple.status_code == 415
            for origin, code in (("http://evil.example", 403), ("null", 403), ("http://localhost", 202)):
                answer = await r.http.post("/v1/tasks", json=order(), headers={"Origin": origin})
                assert answer.status_code == code

    drive(test)


def test_a_method_that_a_path_has_not_is_told_which_it_has(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as r:
            for path, methods in {
                "/v1/tasks": "GET, POST",
                "/v1/tasks/a": "DELETE, GET",
                "/evaluate": "POST",
                "/health": "GET, HEAD",
            }.items():
                refused = await r.http.options(path)
                assert (refused.status_code, refused.headers["allow"]) == (405, methods)

    drive(test)


def test_a_packed_body_is_told_to_come_unpacked(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as here:
            body, headers = gzip.compress(json.dumps(order()).encode()), {"Content-Type": "application/json"}
            packed = await here.http.post("/v1/tasks", content=body, headers=headers | {"Content-Encoding": "gzip"})
            assert packed.status_code == 415 and "not as 'gzip'" in packed.json()["detail"]
            plain = headers | {"Content-Encoding": "identity"}
            assert (await here.http.post("/v1/tasks", content=json.dumps(order()), headers=plain)).status_code == 202

    drive(main)


def test_long_bodies_are_refused_with_and_without_a_length(tmp_path: Path) -> None:
    async def chunks() -> AsyncGenerator[bytes]:
        for _ in range(100):
            yield b"x" * 1000

    async def test() -> None:
        async with running(tmp_path, max_body_bytes=10_000) as r:
            json = {"Content-Type": "application/json"}
            for body in (b"x" * 10_001, chunks()):
                refused = await r.http.post("/v1/tasks", content=body, headers=json)
                assert refused.status_code == 413 and "10000" in refused.json()["detail"]
            lying = await r.http.post("/v1/tasks", content=b"{}", headers={**json, "Content-Length": "1e3"})
            assert lying.status_code == 400
            assert (await r.http.post("/v1/tasks", json=order())).status_code == 202
        async with running(tmp_path, max_bodies_bytes=5000) as r:
            refused = await r.http.post("/v1/tasks", content=b"x" * 6000, headers=json)
            assert refused.status_code == 429 and refused.headers["retry-after"] == "1"
            assert (await r.http.post("/v1/tasks", json=order())).status_code == 202

    drive(test)


def test_a_full_queue_refuses_new_work_but_not_retries(tmp_path: Path) -> None:
    async def test() -> None:
        executor = TextExecutor(num_slots=1)
        async with running(tmp_path, executor, max_queued=5) as r:
            await r.http.post("/v1/tasks", json=order("wait", id="running"))
            await until(lambda: r.service.states["running"] == 1)
            for i in range(5):
                assert (await r.http.post("/v1/tasks", json=order("passed", id=f"t{i}"))).status_code == 202
            refused = await r.http.post("/v1/tasks", json=order("passed", id="more"))
            assert refused.status_code == 429 and 1 <= int(refused.headers["retry-after"]) <= 30
            assert (await r.http.post("/v1/tasks", json=order("passed", id="t3"))).status_code == 200
            assert (await r.http.get("/v1/tasks/more")).status_code == 404
            many = [
                r.http.post(
                    "/evaluate", json={"task_id": f"g{i}", "reference_code": "x", "kernel_code": "y", "timeout": 0.1}
                )
                for i in range(20)
            ]
            assert {answer.status_code for answer in await asyncio.gather(*many)} == {429}
            executor.release.set()
            await until(lambda: r.service.states["done"] == 6)
            assert (await r.http.post("/v1/tasks", json=order("passed", id="more"))).status_code == 202

    drive(test)


def test_what_never_fits_into_the_queue_is_not_asked_to_come_later(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, TextExecutor(), max_queued=3, max_queued_bytes=10_000) as here:
            many = {"tasks": [order(id=f"many-{number}") for number in range(4)]}
            long = {"tasks": [order("passed" + " " * 10_000, id="long")]}
            for body, words in ((many, "4 tasks with"), (long, "1 tasks with 10")):
                refused = await here.http.post("/v1/tasks/batch", json=body)
                assert refused.status_code == 413 and "retry-after" not in refused.headers
                assert words in refused.json()["detail"]
                assert "at most 3 tasks with 10000 bytes may wait here" in refused.json()["detail"]

    drive(main)


def test_a_queue_is_also_full_by_bytes_and_waiting_requests_are_counted(tmp_path: Path) -> None:
    async def test() -> None:
        executor = TextExecutor(num_slots=1)
        async with running(tmp_path, executor, max_queued_bytes=20_000, max_waiting=1) as r:
            await r.http.post("/v1/tasks", json=order("wait", id="running"))
            await until(lambda: r.service.states["running"] == 1)
            assert (await r.http.post("/v1/tasks", json=order("passed " + "x" * 15_000))).status_code == 202
            assert (await r.http.post("/v1/tasks", json=order("passed " + "x" * 15_000))).status_code == 429
            waiting = asyncio.create_task(r.http.get("/v1/tasks/running", params={"wait": 20}))
            await until(lambda: len(r.service.waiters) == 1)
            assert (await r.http.get("/v1/tasks/running", params={"wait": 20})).status_code == 429
            assert (await r.http.post("/v1/results", json={"ids": ["running"]})).status_code == 429
            executor.release.set()
            assert (await waiting).json()["state"] == "done"

    drive(test)


def test_a_fault_of_ours_is_an_id_and_never_a_traceback(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with running(tmp_path) as r:
            r.service.reader.close()
            for path in ("/v1/tasks", "/v1/tasks/a", "/status/a", "/v1/overview", "/metrics"):
                failed = await r.http.get(path)
                assert failed.status_code == 500
                assert set(failed.json()) == {"detail", "request_id"} and "sqlite" not in failed.text
                assert failed.json()["request_id"] == failed.headers["x-request-id"]
                assert failed.json()["request_id"] in caplog.text

    drive(test)
    assert "ProgrammingError" in caplog.text


def test_who_hangs_up_amid_a_body_is_no_fault_of_ours(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with running(tmp_path) as r:
            messages = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
            headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
            scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/v1/tasks", "headers": headers}
            scope |= {"query_string": b"", "root_path": "", "http_version": "1.1", "scheme": "http"}
            sent: list[Any] = []

            async def receive() -> Any:
                return messages.pop(0)

            async def send(message: Any) -> None:
                sent.append(message)

            await r.app(scope, receive, send)
            assert sent == []
            assert 'dojo_requests_total{code="499",method="POST"} 1.0' in (await r.http.get("/metrics")).text

    drive(test)
    assert "Traceback" not in caplog.text


def test_metrics_are_prometheus(tmp_path: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    async def test() -> None:
        async with running(tmp_path) as r:
            await r.http.post("/v1/tasks", json=order("passed", id="a"))
            await r.http.get("/v1/tasks/a", params={"wait": 20})
            text = (await r.http.get("/metrics")).text
            samples = {
                (sample.name, *sorted(sample.labels.values())): sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
            }
            assert samples["dojo_tasks", "done"] == 1 and samples["dojo_verdicts", "passed"] == 1
            assert samples["dojo_device_healthy", "cpu"] == 1 and samples["dojo_acknowledge_seconds_count",] == 1
            assert samples["dojo_requests_total", "202", "POST"] == 1

    drive(test)


def test_metrics_stay_few_whatever_clients_call_themselves(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, TextExecutor(num_slots=1)) as r:
            await r.http.post("/v1/tasks", json=order("wait"))
            for number in range(2 * MOST_CLIENTS):
                headers = {"X-Dojo-Client": f"client-{number}"}
                await r.http.post("/v1/tasks", json=order(f"passed {number}"), headers=headers)
            for _ in range(2):
                text = (await r.http.get("/metrics")).text
                assert text.count('state="queued"} ') <= MOST_CLIENTS + 2
            assert 'dojo_client_tasks{client="(others)",state="queued"} 100.0' in text
            r.executor.release.set()
            await until(lambda: r.service.states["done"] == 2 * MOST_CLIENTS + 1)
            text = (await r.http.get("/metrics")).text
            assert 'dojo_client_ended_total{client="(others)"} 101.0' in text
            assert 'dojo_client_ended_total{client="client-3"} 1.0' in text
            assert 'dojo_client_tasks{client="client-3",state="queued"} 0.0' in text

    drive(test)
