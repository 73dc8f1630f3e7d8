"""A store with a page that cannot be read: what lies on it is lost, the rest is served, and all of it is said."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
from service_app import order
from service_damage import damage_where
from service_process import ServiceProcess

NUM_TASKS = 60


def test_a_damaged_page_costs_what_lies_on_it_and_no_more(tmp_path: Path) -> None:
    ids = [f"t{i}" for i in range(NUM_TASKS)]
    tasks = [order(f"word{i}{'x' * 3000}", id=one) for i, one in enumerate(ids)]
    with ServiceProcess(tmp_path) as first:
        httpx.post(f"{first.url}/v1/tasks/batch", json={"tasks": tasks}).raise_for_status()
        assert all(httpx.get(f"{first.url}/v1/tasks/{one}?wait=30").json()["state"] == "done" for one in ids)
        assert first.stop() == 0
    damage_where(tmp_path / "store.db", b"said word7x")

    with ServiceProcess(tmp_path) as second, httpx.Client(base_url=second.url) as http:
        with http.stream("GET", "/v1/events") as events:  # Somebody looks on.
            next(events.iter_lines())
            lost = http.get("/v1/tasks/t7")
            assert lost.status_code == 500
            assert lost.json()["detail"] == "the store is damaged: database disk image is malformed"
            lines = http.post("/v1/results", json={"ids": ids}).text.splitlines()
            found = [json.loads(line)["id"] for line in lines if line]
            assert "t7" not in found and len(found) >= NUM_TASKS - 4
            assert http.post("/v1/tasks", json=order("passed new", id="new")).status_code == 202
            assert http.get("/v1/tasks/new?wait=30").json()["status"] == "passed"
            health = http.get("/health")
            assert health.status_code == 200 and health.json()["reasons"] == [lost.json()["detail"]]
        assert second.stop() == 0
    assert "Traceback" not in "".join(second.lines)


def test_health_does_not_call_a_store_writable_that_refuses_tasks(tmp_path: Path) -> None:
    """Its own write is small, and fits where a task does not."""
    with (
        ServiceProcess(tmp_path, "--grace", "1", limit="-f 2000") as service,
        httpx.Client(base_url=service.url) as http,
    ):
        for i in range(1000):
            answer = http.post("/v1/tasks", json=order("passed " + "x" * 20_000, id=f"t{i}"))
            if answer.status_code != 202:
                break
        assert answer.status_code == 503
        health = http.get("/health")
        assert health.status_code == 503 and health.json()["reasons"] == ["the store cannot be written"]
        assert http.get("/v1/tasks/t0").json()["state"] == "done"
        assert service.stop() == 0


def test_a_store_that_was_removed_takes_no_more_tasks(tmp_path: Path) -> None:
    """They would be on disk, in a file that no later service finds."""
    with ServiceProcess(tmp_path) as service, httpx.Client(base_url=service.url) as http:
        assert http.post("/v1/tasks", json=order("passed", id="before")).status_code == 202
        moved = (tmp_path / "store.db").rename(tmp_path / "moved.db")
        assert http.post("/v1/tasks", json=order("passed", id="amid")).status_code == 503
        health = http.get("/health")
        assert health.status_code == 503
        assert health.json()["reasons"] == ["the store's file was removed or replaced"]
        moved.rename(tmp_path / "store.db")
        assert http.post("/v1/tasks", json=order("passed", id="amid")).status_code == 202
        assert http.get("/health").status_code == 200
        assert service.stop() == 0
