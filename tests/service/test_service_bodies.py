"""Bodies that are small on the wire and would be large as what they say, or as what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from service_app import drive, order, running
from service_process import ServiceProcess

from kerneldojo.service import bodies


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path) as process:
        yield process


@pytest.mark.parametrize(
    ("path", "start", "value", "end", "code"),
    [
        ("/v1/results", b'{"ids":[', b"1", b"]}", 413),
        ("/v1/results", b'{"ids":[', b'"a,b"', b"]}", 413),
        ("/v1/tasks/batch", b'{"tasks":[', b"{}", b"]}", 413),
        ("/v1/tasks", b"{", b'"k":1', b"}", 413),
        ("/evaluate", b'{"task_id":[', b"[]", b"]}", 413),
        ("/v1/results", b'{"ids":["\\"', b",", b'"]}', 422),
    ],
)
def test_a_body_of_a_million_mistakes_takes_little_memory(
    service: ServiceProcess, path: str, start: bytes, value: bytes, end: bytes, code: int
) -> None:
    import httpx

    body = start + value + (b"," + value) * 1_000_000 + end
    before = _most_memory(service)
    answer = httpx.post(service.url + path, content=body, headers={"Content-Type": "application/json"}, timeout=60)
    assert answer.status_code == code
    assert len(answer.json()["detail"].splitlines()) == 1 and len(answer.json()["detail"]) <= 1000
    assert _most_memory(service) - before < 10 * len(body) + (16 << 20)


def _most_memory(service: ServiceProcess) -> int:
    """Most bytes that the service had at once."""
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def test_keys_that_nobody_knows_are_not_told_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "one_line", lambda details: pytest.fail("they were built"))

    async def test() -> None:
        async with running(tmp_path) as here:
            unknown = {f"key{number}": 1 for number in range(50_000)}
            answer = await here.http.post("/v1/tasks", json=unknown)
            assert answer.status_code == 422
            assert answer.json()["detail"] == "body: 50001 mistakes, too many to be named"

    drive(test)


def test_commas_in_a_source_are_no_values(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as here:
            source = 'passed 1 # "' + '\\"{[,' * 100_000
            answer = await here.http.post("/v1/tasks", json=order(source, id="many"))
            assert answer.status_code == 202, answer.text

    drive(test)


def test_a_list_of_mistakes_is_not_called_empty(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as here:
            task = {"task_id": "a", "reference_code": "x", "kernel_code": "y", "entry_point": "!"}
            answer = await here.http.post("/evaluate/batch", json={"batch_id": "b", "tasks": [task, task]})
            told = answer.json()["detail"].split("; ")
            assert [line.partition(":")[0] for line in told] == ["tasks.0.entry_point", "tasks.1.entry_point"]
            answer = await here.http.post("/evaluate/batch", json={"batch_id": "b", "tasks": []})
            assert "at least 1" in answer.json()["detail"]

    drive(test)
