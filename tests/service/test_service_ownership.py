"""A task belongs to the client that submitted it: for others it does not exist, for the administrator it does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from service_app import Running, drive, order, running, until
from service_executors import TextExecutor

from kerneldojo.service.onlooker import Onlooker
from kerneldojo.service.tokens import parse_tokens, sees_all
from kerneldojo.service.viewer import Viewer

SECRET = "correct-horse-battery"
TOKENS = parse_tokens("".join(f"{name}:{SECRET}-{name}\n" for name in ("alice", "bob", "admin")))
KERNEL = {"reference_code": "passed 1", "kernel_code": "passed 1"}


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {SECRET}-{name}", "Host": "anything"}


@asynccontextmanager
async def with_tasks(folder: Path) -> AsyncGenerator[tuple[Running, TextExecutor]]:
    """Alice has one task that ended and one that runs, and KernelGYM's client of hers one more."""
    executor = TextExecutor(num_slots=2)
    async with running(folder, executor, tokens=TOKENS, host="0.0.0.0") as r:
        for name, source in (("done", "passed 1"), ("runs", "wait")):
            await r.http.post("/v1/tasks", json=order(source, id=name), headers=bearer("alice"))
        await r.http.get("/v1/tasks/done", params={"wait": 20}, headers=bearer("alice"))
        await r.http.post("/evaluate", json={"task_id": "gym", **KERNEL}, headers=bearer("alice"))
        yield r, executor
        executor.release.set()


def requests(http: httpx.AsyncClient, name: str) -> dict[str, Any]:
    """Every way to learn of a task, or to end it."""
    return {
        "get": http.get(f"/v1/tasks/{name}"),
        "wait": http.get(f"/v1/tasks/{name}", params={"wait": 20}),
        "job": http.get(f"/v1/tasks/{name}", params={"include": "job"}),
        "stream": http.post("/v1/results", json={"ids": [name]}),
        "status": http.get(f"/status/{name}"),
        "results": http.get(f"/results/{name}"),
        "workflow": http.get(f"/workflow/results/{name}"),
        "cancel": http.delete(f"/v1/tasks/{name}"),
        "cancel as KernelGYM does": http.delete(f"/tasks/{name}"),
    }


def test_for_others_a_task_does_not_exist(tmp_path: Path) -> None:
    async def test() -> None:
        async with with_tasks(tmp_path) as (r, _):
            r.http.headers.update(bearer("bob"))
            for name in ("done", "runs", "gym", "nobody"):
                answers = {what: await asking for what, asking in requests(r.http, name).items()}
                assert {what: answer.status_code for what, answer in answers.items()} == dict.fromkeys(answers, 404)
                assert {answer.text for what, answer in answers.items() if what != "stream"} == {answers["get"].text}
            assert (await r.http.get("/v1/tasks")).json()["tasks"] == []
            assert (await r.http.get("/v1/tasks", params={"client": "alice"})).json()["tasks"] == []
            seen = (await r.http.get("/v1/overview")).json()
            assert seen["running"] == seen["latest"] == [] and seen["queue"]["clients"] == {}
            assert "gym" not in json.dumps((await r.http.get("/workers/status")).json())
            assert seen["states"] == {"done": 2, "running": 1}, "totals are everybody's"
            r.http.headers.update(bearer("alice"))
            assert (await r.http.get("/v1/tasks/runs")).json()["state"] == "running"
            assert (await r.http.post("/v1/results", json={"ids": ["done", "gym"]})).text.count('"state":"done"') == 2
            assert len((await r.http.get("/v1/tasks")).json()["tasks"]) == 3

    drive(test)


def test_an_id_that_is_another_clients_is_a_conflict_whatever_the_job(tmp_path: Path) -> None:
    async def test() -> None:
        async with with_tasks(tmp_path) as (r, _):
            same, other = order("passed 1", id="done"), order("passed 2", id="done")
            for name, codes in (("alice", (200, 409)), ("admin", (200, 409)), ("bob", (409, 409))):
                found = [await r.http.post("/v1/tasks", json=body, headers=bearer(name)) for body in (same, other)]
                assert tuple(answer.status_code for answer in found) == codes
            batch = await r.http.post("/v1/tasks/batch", json={"tasks": [same, order(id="b")]}, headers=bearer("bob"))
            assert [task["error"] for task in batch.json()["tasks"]] == ["conflict", ""]
            gym = await r.http.post("/evaluate", json={"task_id": "gym", **KERNEL}, headers=bearer("bob"))
            assert gym.status_code == 409 and "passed" not in gym.text

    drive(test)


def test_the_administrator_sees_and_cancels_everything(tmp_path: Path) -> None:
    async def test() -> None:
        async with with_tasks(tmp_path) as (r, _):
            r.http.headers.update(bearer("admin"))
            assert {task["client"] for task in (await r.http.get("/v1/tasks")).json()["tasks"]} == {"alice"}
            seen = (await r.http.get("/v1/overview")).json()
            assert [task["id"] for task in seen["running"]] == ["runs"] and len(seen["latest"]) == 2
            assert (await r.http.delete("/v1/tasks/runs")).json()["state"] == "cancelled"

    drive(test)


def test_metrics_tell_each_client_of_itself_and_the_administrator_of_all(tmp_path: Path) -> None:
    async def test() -> None:
        async with with_tasks(tmp_path) as (r, _):
            await r.http.post("/v1/tasks", json=order("wait more", id="waits"), headers=bearer("bob"))
            await r.http.post("/v1/tasks", json=order("wait again", id="queued"), headers=bearer("alice"))
            told = {
                name: [
                    line
                    for line in (await r.http.get("/metrics", headers=bearer(name))).text.splitlines()
                    if line.startswith("dojo_client_") and "_created" not in line
                ]
                for name in ("alice", "bob", "admin")
            }
            assert told["alice"] == [
                'dojo_client_tasks{client="alice",state="queued"} 1.0',
                'dojo_client_tasks{client="alice",state="running"} 1.0',
                'dojo_client_ended_total{client="alice"} 2.0',
            ]
            assert 'dojo_client_tasks{client="bob",state="running"} 1.0' in told["bob"]
            assert not any("alice" in line for line in told["bob"])
            assert set(told["admin"]) == {*told["alice"], *told["bob"]}
            await r.http.delete("/v1/tasks/queued", headers=bearer("alice"))
            await r.http.delete("/v1/tasks/runs", headers=bearer("admin"))
            text = (await r.http.get("/metrics", headers=bearer("admin"))).text
            assert 'dojo_client_ended_total{client="alice"} 4.0' in text

    drive(test)


def test_events_tell_each_reader_of_what_is_theirs(tmp_path: Path) -> None:
    async def test() -> None:
        async with with_tasks(tmp_path) as (r, _):
            readers = {name: Onlooker(Viewer(name, name == "admin")) for name in ("alice", "bob", "admin")}
            r.service.onlookers.update(readers.values())
            await r.http.post("/v1/tasks", json=order("passed", id="of-bob"), headers=bearer("bob"))
            await until(lambda: r.service.states["done"] == 3)
            await asyncio.sleep(1.2)  # An overview comes each second.
            heard = {name: await reader.read(5.0) for name, reader in readers.items()}
            r.service.onlookers.clear()
            ids = {name: {data.id for kind, data in events if kind == "task"} for name, events in heard.items()}
            assert ids == {"alice": set(), "bob": {"of-bob"}, "admin": {"of-bob"}}
            latest = {
                name: {task.id for kind, data in events if kind == "overview" for task in data.latest}
                for name, events in heard.items()
            }
            assert latest["alice"] == {"done", "gym"} and latest["bob"] == {"of-bob"}
            assert latest["admin"] == {"done", "gym", "of-bob"}

    drive(test)


@pytest.mark.parametrize(
    ("lines", "client", "all_of_them"),
    [
        ("alice", "alice", True),
        ("alice alice", "alice", True),
        ("alice bob", "bob", False),
        ("alice admin", "admin", True),
    ],
)
def test_who_sees_all(lines: str, client: str, all_of_them: bool) -> None:
    tokens = parse_tokens("".join(f"{name}:{SECRET}-{at}\n" for at, name in enumerate(lines.split())))
    assert sees_all(tokens, client) is all_of_them
    assert sees_all((), client), "without tokens everyone who reaches the address may see everything"
