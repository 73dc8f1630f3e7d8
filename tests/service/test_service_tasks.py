"""The native API in one process: submit, wait, stream, cancel, list, expire, prune."""

from __future__ import annotations

import asyncio
import itertools
import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from service_app import drive, order, running, until
from service_executors import TextExecutor

from kerneldojo.schema import Status
from kerneldojo.service import ServiceConfig
from kerneldojo.service.core import Service
from kerneldojo.service.housekeeping import prune
from kerneldojo.service.records import Overview, TaskRecord, TaskState
from kerneldojo.service.store import Store


def test_a_task_from_submission_to_verdict(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as r:
            accepted = await r.http.post("/v1/tasks", json=order("passed 1", id="a"))
            assert accepted.status_code == 202
            assert accepted.json() == {"id": "a", "state": "queued", "is_new": True, "error": ""}
            found = await r.http.get("/v1/tasks/a", params={"wait": 20, "include": "job"})
            record = TaskRecord.model_validate_json(found.content)
            assert record.state is TaskState.DONE and record.status is Status.PASSED
            assert record.evaluation is not None and record.evaluation.speedup == record.speedup == 2.0
            assert record.job is not None and record.job.candidate.source == "passed 1"
            assert record.roofline_fraction == 0.5 and record.attempts == 1
            assert record.submitted_at <= (record.started_at or 0) <= (record.finished_at or 0)

    drive(test)


def test_the_same_id_is_the_same_task_and_another_job_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as r:
            for code in (202, 200, 200):
                assert (await r.http.post("/v1/tasks", json=order("passed", id="a"))).status_code == code
            conflict = await r.http.post("/v1/tasks", json=order("passed other", id="a"))
            assert conflict.status_code == 409 and "another job" in conflict.json()["detail"]
            await r.http.get("/v1/tasks/a", params={"wait": 20})
            assert (await r.http.post("/v1/tasks", json=order("passed", id="a"))).json()["state"] == "done"
            assert len(r.executor.seen) == 1

    drive(test)


def test_a_batch_is_one_write_and_tells_conflicts_apart(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as r:
            await r.http.post("/v1/tasks", json=order("passed", id="a"))
            orders = [order("other", id="a"), order("b", id="b"), order("b", id="b"), order("c")]
            found = (await r.http.post("/v1/tasks/batch", json={"tasks": orders})).json()["tasks"]
            assert [task["error"] for task in found] == ["conflict", "", "", ""]
            assert [task["is_new"] for task in found] == [False, True, False, True]

    drive(test)


def test_results_stream_as_they_come_and_a_line_is_a_record(tmp_path: Path) -> None:
    async def test() -> None:
        executor = TextExecutor()
        async with running(tmp_path, executor) as r:
            orders = [order("wait", id="late"), *(order(f"odd {i}", id=f"t{i}") for i in range(20))]
            await r.http.post("/v1/tasks/batch", json={"tasks": orders})
            ids = [task["id"] for task in orders]

            async def release() -> None:
                await until(lambda: r.service.states["done"] == 20)
                executor.release.set()

            releasing = asyncio.create_task(release())
            answer = await r.http.post("/v1/results", json={"ids": [*ids, "late"]})
            await releasing
            records = [TaskRecord.model_validate_json(line) for line in answer.content.split(b"\n") if line]
            assert sorted(record.id for record in records) == sorted(ids) and records[-1].id == "late"
            assert records[0].evaluation is not None and "\u2028" in records[0].evaluation.message
            unknown = await r.http.post("/v1/results", json={"ids": ["late", "nobody", "neither"]})
            assert unknown.status_code == 404 and "2 of these" in unknown.text and "first is nobody" in unknown.text
            assert len(r.service.waiters) == 0

    drive(test)


def test_cancelling_queued_and_running_tasks(tmp_path: Path) -> None:
    async def test() -> None:
        executor = TextExecutor(num_slots=1)
        async with running(tmp_path, executor) as r:
            await r.http.post("/v1/tasks", json=order("wait", id="running"))
            await r.http.post("/v1/tasks", json=order("passed", id="queued"))
            await until(lambda: r.service.states["running"] == 1)
            waiting = asyncio.create_task(r.http.get("/v1/tasks/queued", params={"wait": 30}))
            await asyncio.sleep(0.05)
            for name in ("queued", "running", "running"):
                assert (await r.http.delete(f"/v1/tasks/{name}")).json()["state"] == "cancelled"
            assert (await waiting).json()["state"] == "cancelled"
            executor.release.set()
            await r.http.post("/v1/tasks", json=order("passed", id="next"))
            assert (await r.http.get("/v1/tasks/next", params={"wait": 20})).json()["state"] == "done"
            assert (await r.http.get("/v1/tasks/running")).json()["evaluation"] is None
            assert [job.candidate.source for job in executor.seen] == ["wait", "passed"]
            assert (await r.http.delete("/v1/tasks/nobody")).status_code == 404
            assert r.service.states == {"done": 1, "cancelled": 2, "queued": 0, "running": 0}

    drive(test)


def test_a_task_that_has_begun_is_left_alone_where_only_a_queued_one_is_to_be_cancelled(tmp_path: Path) -> None:
    async def test() -> None:
        executor = TextExecutor(num_slots=1)
        async with running(tmp_path, executor) as r:
            for name, source in (("done", "passed"), ("running", "wait"), ("queued", "passed 2")):
                await r.http.post("/v1/tasks", json=order(source, id=name))
                await until(lambda: r.service.states["running"] == 1 or not r.service.states["queued"])
            await until(lambda: r.service.states == {"done": 1, "running": 1, "queued": 1})
            for name in ("queued", "running", "done"):
                for _ in range(2):
                    asked = await r.http.delete(f"/v1/tasks/{name}", params={"if_queued": "true"})
                    assert asked.json()["state"] == name.replace("queued", "cancelled")
            assert (await r.http.delete("/v1/tasks/nobody?if_queued=true")).status_code == 404
            executor.release.set()
            ended = (await r.http.get("/v1/tasks/running", params={"wait": 20})).json()
            assert ended["state"] == "done" and ended["evaluation"]["status"] == "incorrect"
            assert [job.candidate.source for job in executor.seen] == ["passed", "wait"]
            assert +r.service.states == {"done": 2, "cancelled": 1}

    drive(test)


def test_a_task_that_is_cancelled_while_it_is_being_started_is_counted_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, TextExecutor(num_slots=1)) as here:
            await here.http.post("/v1/tasks/batch", json={"tasks": [order("wait", id=i) for i in "ab"]})
            await until(lambda: here.service.states["running"] == 1)
            cancelled = asyncio.create_task(here.service.cancel("b"))
            await asyncio.sleep(0)
            here.executor.num_slots = 2
            here.service.dispatcher.pump()
            assert "b" in here.service.dispatcher.runs, "it is being started, and the store says that it is cancelled"
            assert await cancelled
            await until(lambda: not here.service.dispatcher.queue and len(here.service.dispatcher.runs) == 1)
            assert (await here.http.get("/v1/overview")).json()["states"] == {"running": 1, "cancelled": 1}

    drive(main)


def test_a_task_that_waits_past_its_deadline_ends_unscored(tmp_path: Path) -> None:
    async def test() -> None:
        executor = TextExecutor(num_slots=1)
        async with running(tmp_path, executor) as r:
            await r.http.post("/v1/tasks", json=order("wait", id="first"))
            await r.http.post("/v1/tasks", json=order("passed", id="late", deadline_seconds=0.1))
            record = TaskRecord.model_validate_json((await r.http.get("/v1/tasks/late", params={"wait": 20})).content)
            assert record.expired and record.status is Status.INFRASTRUCTURE_ERROR
            assert not record.status.is_about_candidate
            executor.release.set()
            await r.http.get("/v1/tasks/first", params={"wait": 20})
            assert len(executor.seen) == 1
            assert (await r.http.get("/status/late")).json()["status"] == "timeout"

    drive(test)


def test_a_task_that_becomes_overdue_between_two_rounds_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kerneldojo.service.housekeeping.TICK_SECONDS", 1.5)

    async def test() -> None:
        executor = TextExecutor(num_slots=1)
        async with running(tmp_path, executor) as r:
            await r.http.post("/v1/tasks", json=order("wait", id="first"))
            await r.http.post("/v1/tasks", json=order("passed", id="late", deadline_seconds=0.1))
            await asyncio.sleep(0.3)
            executor.release.set()
            await r.http.get("/v1/tasks/first", params={"wait": 20})
            assert (await r.http.get("/v1/tasks/late", params={"wait": 20})).json()["expired"]
            assert len(executor.seen) == 1
            await until(lambda: r.service.states == {"done": 2, "queued": 0, "running": 0})

    drive(test)


def test_what_became_overdue_while_there_was_no_service_is_not_started(tmp_path: Path) -> None:
    async def leave() -> None:
        async with running(tmp_path, TextExecutor(num_slots=1)) as r:
            await r.http.post("/v1/tasks", json=order("wait", id="first"))
            await r.http.post("/v1/tasks", json=order("passed", id="late", deadline_seconds=0.3))

    async def test() -> None:
        async with running(tmp_path) as r:
            record = TaskRecord.model_validate_json((await r.http.get("/v1/tasks/late", params={"wait": 20})).content)
            assert record.expired and record.attempts == 0
            assert not any("passed" in job.candidate.source for job in r.executor.seen)

    drive(leave)
    time.sleep(0.4)
    drive(test)


def test_faults_of_the_executor_end_as_ours_and_leak_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as r:
            await r.http.post("/v1/tasks", json=order("raise", id="a"))
            await r.http.post("/v1/tasks", json=order("passed", id="b", device="cuda:99"))
            first = (await r.http.get("/v1/tasks/a", params={"wait": 20})).json()
            second = (await r.http.get("/v1/tasks/b", params={"wait": 20})).json()
            assert first["status"] == "infrastructure_error" and "secret" not in json.dumps(first)
            assert second["status"] == "unsupported_on_device" and "cuda:99" in second["evaluation"]["message"]

    drive(test)


def test_an_executor_that_takes_no_jobs_loses_none(tmp_path: Path) -> None:
    async def first() -> None:
        executor = TextExecutor()
        executor.is_closed = True
        async with running(tmp_path, executor) as r:
            await r.http.post("/v1/tasks", json=order("passed", id="a"))
            await until(lambda: bool(r.service.dispatcher.is_broken))
            assert (await r.http.get("/health")).status_code == 503

    async def second() -> None:
        async with running(tmp_path) as r:
            assert (await r.http.get("/v1/tasks/a", params={"wait": 20})).json()["status"] == "passed"

    drive(first)
    drive(second)


def test_a_job_that_cannot_be_read_for_a_moment_is_read_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, TextExecutor(num_slots=1)) as r:
            interrupted = iter([True] * 3)  # as the disk's or a lock's moment is: an error of SQLite's own
            reader = r.service.dispatcher._reader._connection
            reader.set_progress_handler(lambda: next(interrupted, False), 1)
            await r.http.post("/v1/tasks", json=order("passed", id="a"))
            record = (await r.http.get("/v1/tasks/a", params={"wait": 20})).json()
            assert record["status"] == "passed" and next(interrupted, None) is None

    drive(test)


def test_a_job_that_cannot_be_read_can_be_cancelled_or_left_to_the_next_service(tmp_path: Path) -> None:
    async def first() -> None:
        async with running(tmp_path, TextExecutor(num_slots=2)) as r:
            r.service.dispatcher._reader._connection.set_progress_handler(lambda: True, 1)
            await r.http.post("/v1/tasks/batch", json={"tasks": [order("passed", id=i) for i in "ab"]})
            runs = r.service.dispatcher.runs
            await until(lambda: len(runs) == 2 and all(run.num_failed_reads for run in runs.values()))
            assert await r.service.cancel("a")
            await until(lambda: list(runs) == ["b"])
            assert not r.executor.seen

    async def second() -> None:
        async with running(tmp_path) as r:
            assert (await r.http.get("/v1/tasks/b", params={"wait": 20})).json()["status"] == "passed"
            assert (await r.http.get("/v1/tasks/a")).json()["state"] == "cancelled"

    drive(first)
    drive(second)


def test_a_job_that_stays_unreadable_ends_unscored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kerneldojo.service.dispatch.MAX_READS", 2)

    async def test() -> None:
        async with running(tmp_path) as r:
            r.service.dispatcher._reader._connection.set_progress_handler(lambda: True, 1)
            await r.http.post("/v1/tasks", json=order("passed", id="a"))
            record = (await r.http.get("/v1/tasks/a", params={"wait": 20})).json()
            assert record["status"] == "infrastructure_error" and "cannot be read" in record["evaluation"]["message"]

    drive(test)


def test_a_task_that_was_there_whenever_the_service_died_ends_unscored(tmp_path: Path) -> None:
    async def leave() -> None:
        service = Service(ServiceConfig(store=tmp_path / "store.db"), TextExecutor(num_slots=1))
        await service.start()
        await service.stop()

    async def test() -> None:
        async with running(tmp_path, max_attempts=3) as r:
            record = (await r.http.get("/v1/tasks/deadly", params={"wait": 20})).json()
            assert record["status"] == "infrastructure_error" and "died" in record["evaluation"]["message"]
            assert (await r.http.get("/v1/tasks/fine", params={"wait": 20})).json()["status"] == "passed"
            assert len(r.executor.seen) == 1

    drive(leave)
    with sqlite3.connect(tmp_path / "store.db") as database:
        for name, attempts in (("deadly", 3), ("fine", 2)):
            cursor = database.execute(
                "INSERT INTO tasks (id, state, client, priority, content, num_bytes, problem, device, submitted_at,"
                " attempts) VALUES (?, 'running', 'c', 1, '', 1, 'p', 'auto', 1.0, ?)",
                (name, attempts),
            )
            database.execute("INSERT INTO jobs VALUES (?, ?)", (cursor.lastrowid, json.dumps(order("passed")["job"])))
    drive(test)


def test_lists_pages_and_filters(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as r:
            orders = [order("passed" if i % 3 else "incorrect", id=f"t{i}") for i in range(12)]
            await r.http.post("/v1/tasks/batch", json={"tasks": orders})
            await until(lambda: r.service.states["done"] == 12)
            seen: list[str] = []
            params: dict[str, Any] = {"limit": 5}
            while True:
                page = (await r.http.get("/v1/tasks", params=params)).json()
                seen += [task["id"] for task in page["tasks"]]
                if page["next"] is None:
                    break
                params["before"] = page["next"]
            assert seen == [f"t{i}" for i in reversed(range(12))]
            wrong = (await r.http.get("/v1/tasks", params={"status": "incorrect", "state": "done"})).json()
            assert len(wrong["tasks"]) == 4

    drive(test)


@pytest.mark.parametrize("client", [None, "default"])
def test_what_runs_waits_or_was_cancelled_is_found_among_many_that_have_ended(
    tmp_path: Path, client: str | None
) -> None:
    """Each second for whoever watches, on the thread that answers everybody: reading them all would stall it."""
    storage = Store(tmp_path / "store.db")
    storage.writer.execute(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) INSERT INTO tasks"
        " (id, state, client, priority, content, num_bytes, problem, device, submitted_at, finished_at, status)"
        " SELECT 't' || i, 'done', 'default', 1, '', 1, 'p', 'cpu', i, i, 'passed' FROM n"
    )
    reader = storage.reader()
    steps = itertools.count()
    reader._connection.set_progress_handler(lambda: next(steps) < 0, 100)
    theirs = {} if client is None else {"client": client}
    for state in ("queued", "running", "cancelled"):
        assert reader.page(50, None, {"state": state, **theirs}) == []
    assert reader.running(64, client) == [] and list(reader.unfinished()) == []
    assert len(reader.page(50, None, {"state": "done", **theirs})) == 50
    assert next(steps) < 100, "of some hundred thousand instructions that all of them take"
    reader.close()
    storage.close()


def test_the_overview_and_the_events_tell_what_happens(tmp_path: Path) -> None:
    async def test() -> None:
        executor = TextExecutor(num_slots=1)
        async with running(tmp_path, executor) as r:
            await r.http.post("/v1/tasks", json=order("wait", id="a"))
            await r.http.post("/v1/tasks", json=order("passed", id="b"))
            await until(lambda: r.service.states["running"] == 1)
            overview = Overview.model_validate_json((await r.http.get("/v1/overview")).content)
            assert (overview.queue.queued, overview.queue.running, overview.queue.slots) == (1, 1, 1)
            assert [task.id for task in overview.running] == ["a"] and overview.devices[0].name == "cpu"

            async def act() -> None:
                await until(lambda: bool(r.service.onlookers))
                executor.release.set()
                await until(lambda: r.service.states["done"] == 2)
                await asyncio.sleep(0.2)
                await r.service.drain()

            acting = asyncio.create_task(act())
            text = (await r.http.get("/v1/events")).text
            await acting
            events = [block.split("\n") for block in text.split("\n\n") if block.startswith("event: ")]
            tasks = [json.loads(lines[1][6:]) for lines in events if lines[0] == "event: task"]
            assert events[0][0] == "event: overview"
            assert [(task["id"], task["state"]) for task in tasks] == [("a", "done"), ("b", "running"), ("b", "done")]
            assert not r.service.onlookers

    drive(test)


def test_old_results_are_deleted_only_where_that_was_asked_for(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, keep_bytes=300_000) as r:
            orders = [order("passed " + "x" * 10_000, id=f"t{i}") for i in range(60)]
            await r.http.post("/v1/tasks/batch", json={"tasks": orders})
            await r.http.post("/v1/tasks", json=order("sleep 0.01 " + "x" * 10_000, id="last"))
            await until(lambda: r.service.states["done"] == 61)
            await prune(r.service)
            assert r.service.reader.used_bytes() <= 300_000 + 500 * 12_000
            assert r.service.states["done"] < 61

    drive(test)


def test_health_tells_the_truth_about_devices_and_the_store(tmp_path: Path) -> None:
    async def test() -> None:
        executor = TextExecutor()
        async with running(tmp_path, executor) as r:
            assert (await r.http.get("/health")).json()["status"] == "healthy"
            executor.is_healthy = False
            await asyncio.sleep(1.1)
            sick = await r.http.get("/health")
            assert sick.status_code == 503 and "it fell off" in sick.json()["reasons"][0]

    drive(test)


def test_a_store_that_cannot_be_written_refuses_work_and_keeps_verdicts(tmp_path: Path) -> None:
    async def test() -> None:
        executor = TextExecutor()
        async with running(tmp_path, executor) as r:
            await r.http.post("/v1/tasks", json=order("wait", id="a"))
            await until(lambda: r.service.states["running"] == 1)
            r.service.storage.writer.execute("PRAGMA busy_timeout = 50")
            other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            refused = await r.http.post("/v1/tasks", json=order("passed", id="b"))
            assert refused.status_code == 503 and int(refused.headers["retry-after"]) > 0
            assert (await r.http.get("/health")).json()["store_writable"] is False
            executor.release.set()
            await asyncio.sleep(0.3)
            assert (await r.http.get("/v1/tasks/a")).json()["state"] == "running"
            other.execute("ROLLBACK")
            assert (await r.http.get("/v1/tasks/a", params={"wait": 20})).json()["state"] == "done"
            assert (await r.http.get("/v1/tasks/b")).status_code == 404

    drive(test)


def test_overdue_tasks_that_cannot_be_ended_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Very many of them, and a store that stays locked: work is still refused, and memory does not grow."""
    monkeypatch.setattr("kerneldojo.service.housekeeping.TICK_SECONDS", 0.05)
    monkeypatch.setattr("kerneldojo.service.journal.MAX_GROUP", 32)

    async def test() -> None:
        async with running(tmp_path, TextExecutor(num_slots=1)) as r:
            await r.http.post("/v1/tasks", json=order("wait", id="first"))
            late = [order(f"late {i}", deadline_seconds=0.5) for i in range(100)]
            await r.http.post("/v1/tasks/batch", json={"tasks": late})
            r.service.storage.writer.execute("PRAGMA busy_timeout = 50")
            other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            await until(lambda: len(r.service.journal) >= 100)
            for _ in range(3):
                refused = await asyncio.wait_for(r.http.post("/v1/tasks", json=order("passed")), 5)
                assert refused.status_code == 503
            assert len(r.service.journal) == 100
            other.execute("ROLLBACK")
            await until(lambda: r.service.states["done"] == 100)
            assert (await r.http.post("/v1/tasks", json=order("passed"))).status_code == 202
            r.executor.release.set()

    drive(test)


def test_one_store_has_one_service(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path):
            with pytest.raises(ValueError, match="in use by another service"):
                Service(ServiceConfig(store=tmp_path / "store.db"), TextExecutor()).open()

    drive(test)


def test_one_store_has_one_service_whatever_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "file.db").symlink_to("real/store.db")
    store = Store(tmp_path / "real" / "store.db")
    for name in ("file.db", "folder/store.db"):
        with pytest.raises(ValueError, match="in use by another service"):
            Store(tmp_path / name)
    store.close()
    Store(tmp_path / "file.db").close()


def test_a_store_behind_a_circle_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.db").symlink_to("b.db")
    (tmp_path / "b.db").symlink_to("a.db")
    with pytest.raises(ValueError, match="cannot open the store"):
        Store(tmp_path / "a.db")


def test_a_device_is_named_in_few_characters(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as r:
            refused = await r.http.post("/v1/tasks", json=order(device="x" * 201))
            assert refused.status_code == 422 and "job.device" in refused.json()["detail"]

    drive(test)


def test_a_database_of_somebody_else_is_left_as_it_is(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE tasks (a)")
    with pytest.raises(ValueError, match="somebody else's"):
        Store(tmp_path / "other.db")
    with sqlite3.connect(tmp_path / "other.db") as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("tasks",)]


@pytest.mark.parametrize("damage", ["cut", "overwritten"])
def test_a_damaged_store_is_refused_in_one_line(tmp_path: Path, damage: str) -> None:
    async def fill() -> None:
        async with running(tmp_path) as r:
            await r.http.post("/v1/tasks/batch", json={"tasks": [order("hang", id=f"t{n}") for n in range(500)]})

    drive(fill)
    path = tmp_path / "store.db"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] if damage == "cut" else data[:8192] + b"\xff" * (len(data) - 8192))
    for _ in range(2):  # It is let go of, so that the second answer is the first.
        with pytest.raises(ValueError, match=r"cannot open the store .*: .*malformed"):
            Service(ServiceConfig(store=path), TextExecutor()).open()


def test_nothing_of_an_ended_task_stays_in_memory(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as r:
            for _ in range(3):
                await r.http.post(
                    "/v1/tasks/batch", json={"tasks": [order(f"passed {time.time()}") for _ in range(50)]}
                )
            await until(lambda: r.service.states["done"] == 150)
            dispatcher = r.service.dispatcher
            assert not dispatcher.runs and not len(dispatcher.queue) and not dispatcher.queue.num_bytes
            assert not dispatcher.queue._lines and not dispatcher.queue._served and not dispatcher._running_clients
            assert not r.service.waiters._mailboxes and not len(r.service.journal)
            assert r.service._reserved == [0, 0]

    drive(test)
