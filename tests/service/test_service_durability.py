"""A real service in a process of its own that is killed, and one that is asked to stop."""

from __future__ import annotations

import socket
import sqlite3
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest
from fastapi import APIRouter
from service_app import order
from service_executors import TextExecutor
from service_process import ServiceProcess

from kerneldojo import Candidate, Client, Evaluation, Problem
from kerneldojo.client import Retries
from kerneldojo.schema import Job
from kerneldojo.service import ServiceConfig, serve
from kerneldojo.service.core import Service

NUM_TASKS = 1000
SWISH = (
    "import torch\n\nclass Model(torch.nn.Module):\n"
    "    def forward(self, x):\n        return torch.sigmoid(x) * x\n\n"
    "def get_inputs():\n    return [torch.randn(8, 16)]\n\ndef get_init_inputs():\n    return []\n"
)


def job(source: str) -> Job:
    return Job(problem=Problem(name="p", source="x"), candidate=Candidate(source=source))


def test_kill_9_amid_1000_evaluations_leaves_1000_results_each_once(tmp_path: Path) -> None:
    """Killed three times: while work is being accepted, and twice while it is judged."""
    submissions = [order(f"sleep 0.003 {i}", id=f"t{i}") for i in range(NUM_TASKS)]
    acknowledged: list[str] = []

    with ServiceProcess(tmp_path, executor="logged") as first:
        amid = threading.Event()
        killer = threading.Thread(target=lambda: amid.wait() and first.kill())
        killer.start()
        try:
            with httpx.Client(base_url=first.url) as http:
                for start in range(0, NUM_TASKS, 20):
                    answer = http.post("/v1/tasks/batch", json={"tasks": submissions[start : start + 20]})
                    assert answer.status_code == 202
                    acknowledged += [task["id"] for task in answer.json()["tasks"]]
                    if len(acknowledged) >= NUM_TASKS // 5:
                        amid.set()
        except httpx.TransportError:
            pass
        finally:
            amid.set()
            killer.join()
    assert len(acknowledged) < NUM_TASKS, "it was not killed amid"
    on_disk = sqlite3.connect(tmp_path / "store.db").execute("SELECT id FROM tasks").fetchall()
    assert acknowledged and set(acknowledged) <= {row[0] for row in on_disk}

    with ServiceProcess(tmp_path, executor="logged") as second, httpx.Client(base_url=second.url) as http:
        for start in range(0, NUM_TASKS, 250):
            assert http.post("/v1/tasks/batch", json={"tasks": submissions[start : start + 250]}).status_code == 202
        deadline = time.monotonic() + 30
        while http.get("/v1/overview").json()["states"].get("done", 0) < 300 and time.monotonic() < deadline:
            time.sleep(0.02)
        second.kill()

    with ServiceProcess(tmp_path, executor="logged") as third, Client(third.url) as client:
        for i in range(NUM_TASKS):
            record = client.wait(f"t{i}", timeout=60)
            assert record.evaluation is not None and record.evaluation.message == "said sleep"
        assert client.overview().states == {"done": NUM_TASKS}
        assert third.stop() == 0

    with sqlite3.connect(tmp_path / "store.db") as database:
        assert database.execute("SELECT count(*), count(DISTINCT sequence) FROM evaluations").fetchone() == (
            NUM_TASKS,
            NUM_TASKS,
        )
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        attempts = dict(database.execute("SELECT id, attempts FROM tasks"))
    judged = Counter(f"t{line}" for line in (tmp_path / "judged.log").read_text().split())
    # Only what was with the executor when the service died was judged again: at most its slots at each death.
    assert set(judged) == set(attempts)
    assert sum(count - 1 for count in judged.values()) <= 2 * 4
    assert all(judged[name] <= count for name, count in attempts.items())


def test_who_was_there_at_every_death_goes_behind_the_others(tmp_path: Path) -> None:
    """A service that is killed time and again, whatever by, is not to use up the attempts of those who are first."""
    names = [f"t{i}" for i in range(12)]
    with ServiceProcess(tmp_path, executor="logged") as first, httpx.Client(base_url=first.url) as http:
        orders = [order(f"sleep 0.8 {name}", id=name) for name in names]
        assert http.post("/v1/tasks/batch", json={"tasks": orders}).status_code == 202
        first.kill()
    (tmp_path / "judged.log").unlink(missing_ok=True)
    with sqlite3.connect(tmp_path / "store.db") as database:
        database.execute("UPDATE tasks SET state = 'queued', attempts = iif(id = 't0', 3, 2) WHERE id IN ('t0', 't1')")
    with ServiceProcess(tmp_path, executor="logged") as second, Client(second.url) as client:
        assert all(client.wait(name, timeout=30).state == "done" for name in names)
        assert second.stop() == 0
    judged = (tmp_path / "judged.log").read_text().split()
    assert "t1" in judged[:4] and "t0" in judged[-4:] and sorted(judged) == sorted(names)


def test_a_client_does_not_notice_that_the_service_was_killed(tmp_path: Path) -> None:
    found: dict[int, Evaluation] = {}
    with ServiceProcess(tmp_path) as first:
        port = first.url.rpartition(":")[2]
        client = Client(first.url, retries=Retries(give_up_seconds=60))

        def judge_all() -> None:
            jobs = (job(f"sleep 0.01 {i}") for i in range(300))
            found.update(client.judge_many(jobs, window=100))

        thread = threading.Thread(target=judge_all)
        thread.start()
        while len(first.lines) < 100 and client.overview().states.get("done", 0) < 50:
            time.sleep(0.02)
        first.kill()
    with ServiceProcess(tmp_path, "--port", port) as second:
        thread.join(60)
        assert sorted(found) == list(range(300))
        assert client.overview().states == {"done": 300}
        client.close()
        assert second.stop() == 0


def test_sigterm_finishes_what_runs_refuses_what_is_new_and_keeps_what_waits(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path) as first, httpx.Client(base_url=first.url, timeout=30) as http:
        running = [order("sleep 1.5", id=f"running{i}") for i in range(8)]
        waiting = [order(f"sleep 0 {i}", id=f"waiting{i}") for i in range(20)]
        http.post("/v1/tasks/batch", json={"tasks": running})
        http.post("/v1/tasks/batch", json={"tasks": waiting})
        while http.get("/v1/overview").json()["states"].get("running") != 8:
            time.sleep(0.02)
        first.terminate()
        refused = http.post("/v1/tasks", json=order("x", id="new"))
        while refused.status_code == 202:
            refused = http.post("/v1/tasks", json=order("x", id="new2"))
        assert refused.status_code == 503 and int(refused.headers["retry-after"]) > 0
        assert http.get("/health").json()["draining"] is True
        assert http.get("/v1/tasks/running0", params={"wait": 20}).json()["state"] == "done"
        assert first.stop() == 0
    with sqlite3.connect(tmp_path / "store.db") as database:
        states = dict(database.execute("SELECT state, count(*) FROM tasks WHERE id != 'new' GROUP BY state"))
    assert states == {"done": 8, "queued": 20}
    with ServiceProcess(tmp_path) as second, Client(second.url) as client:
        assert all(client.wait(f"waiting{i}", timeout=30).state == "done" for i in range(20))
        assert second.stop() == 0


def test_a_second_signal_does_not_wait_for_what_runs(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path) as service, Client(service.url) as client:
        client.submit(job("sleep 2 long"), id="long")
        while client.get("long").state != "running":
            time.sleep(0.02)
        service.terminate()
        while not client.health().draining:
            time.sleep(0.02)
        assert service.stop() == 0
    assert "Traceback" not in "".join(service.lines)
    with sqlite3.connect(tmp_path / "store.db") as database:
        assert database.execute("SELECT state, attempts FROM tasks").fetchall() == [("queued", 0)]


def test_what_outlasts_the_grace_time_is_judged_after_the_next_start(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path, "--grace", "0.1") as first, Client(first.url) as client:
        client.submit(job("sleep 1 long"), id="long")
        while client.get("long").state != "running":
            time.sleep(0.02)
        assert first.stop() == 0
    with sqlite3.connect(tmp_path / "store.db") as database:
        (state,) = database.execute("SELECT state FROM tasks").fetchone()
    assert state == "queued"
    with ServiceProcess(tmp_path) as second, Client(second.url) as client:
        assert client.wait("long", timeout=30).evaluation is not None
        assert second.stop() == 0


def test_a_pool_that_judges_ends_soon_after_the_grace_time_and_its_task_is_judged_later(tmp_path: Path) -> None:
    """However long the task may still take; one that is alone in its worker is not blamed for the end of it."""
    slow = Candidate(source="import time\ntime.sleep(300)\nclass ModelNew: pass\n")
    work = Job(problem=Problem(name="p", source=SWISH), candidate=slow, device="model:h100", timeout=600)
    with (
        ServiceProcess(tmp_path, "--grace", "0.5", executor="pooled") as service,
        Client(service.url) as client,
    ):
        client.submit(work, id="long")
        deadline = time.monotonic() + 60
        while not any(device.running for device in client.overview().devices):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(2.0)  # Now the candidate is being built, most likely.
        began = time.monotonic()
        assert service.stop() == 0
        assert time.monotonic() - began < 15
    assert "Traceback" not in "".join(service.lines)
    with sqlite3.connect(tmp_path / "store.db") as database:
        assert database.execute("SELECT state, attempts, status FROM tasks").fetchall() == [("queued", 0, None)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--host", "0.0.0.0"), "without a token"),
        (("--host", ""), "dojo: the host to listen on is empty: name one, 127.0.0.1 for this machine alone"),
        (("--token-file", "missing"), "cannot read the token file"),
        (("--executor", "nonsense"), "none of local, ray"),
        (("--executor", "service_executors:nothing"), "cannot open the executor"),
        (("--executor", "os:getpid"), "it is no function of the list of devices"),
        (("--executor", "os:sep"), "it is no function of the list of devices"),
        (("--executor", "builtins:len"), "what it made is no executor: int has no num_slots"),
        (("--executor", "a..b:c"), "cannot open the executor"),
        (("--executor", ":c"), "cannot open the executor"),
        (("--store", ":memory:"), "cannot open the store :memory:: it must be a file"),
        (("--store", "/proc/none/store.db"), "cannot open the store"),
        (("--store", "/dev/null/a/store.db"), "store /dev/null/a/store.db: /dev/null is a file, not a folder"),
        (("--store", "dta/store.db"), "cannot open the store dta/store.db: there is no folder dta"),
        (("--store", "."), "cannot open the store .: it is a folder; name a file in it"),
        (("--device", "tpu"), "none of auto, cpu"),
        (("--port", "99999"), "port"),
    ],
)
def test_a_command_that_cannot_be_carried_out_is_one_line(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    words: str,
) -> None:
    from kerneldojo.cli import app

    monkeypatch.chdir(tmp_path)
    default = () if "--executor" in arguments else ("--executor", "service_executors:text")
    monkeypatch.setattr("sys.argv", ["dojo", "serve", "--port", "0", *default, *arguments])
    with pytest.raises(SystemExit) as end:
        app()
    assert end.value.code == 2
    said = capfd.readouterr().err.strip().splitlines()
    assert len([line for line in said if line.startswith("dojo: ")]) == 1 and words in said[-1]
    assert "Traceback" not in "".join(said)
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_a_port_is_taken_before_a_service_is_ready(tmp_path: Path) -> None:
    """Of two that are started at once, the second is told so in one line, whichever is ready first."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]

    def settings(name: str) -> ServiceConfig:
        return ServiceConfig(store=tmp_path / name / "store.db", port=port)

    def too_late(_: Service) -> APIRouter:
        raise ValueError("it was let in")

    def amid_the_start(_: Service) -> APIRouter:
        with pytest.raises(ValueError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            serve(settings("second"), TextExecutor(), routers=(too_late,))
        raise ValueError("this is enough")

    with pytest.raises(ValueError, match="this is enough"):
        serve(settings("first"), TextExecutor(), routers=(amid_the_start,))


def test_a_real_judge_behind_a_real_service(tmp_path: Path) -> None:
    """Candidates that do not compile, judged for real and quickly."""
    with ServiceProcess(tmp_path, "--device", "cpu", executor="real") as service, Client(service.url) as client:
        evaluation = client.judge(Problem(name="same", source=SWISH), Candidate(source="class ModelNew(:\n"))
        assert evaluation.status == "compile_error" and evaluation.problem_hash
        assert service.stop() == 0
