"""The calls that KernelGYM's reward client makes, in its order, and what its trainer reads of the answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from service_app import drive, order, running, until
from service_executors import TextExecutor
from service_process import ServiceProcess

ENDED = ("completed", "failed", "timeout", "cancelled")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ServiceProcess(tmp_path_factory.mktemp("gym")) as service:
        yield service.url
        assert service.stop() == 0


def payload(task_id: str, kernel: str, **rest: Any) -> dict[str, Any]:
    return {
        "task_id": task_id,
        "reference_code": "class Model: pass",
        "kernel_code": kernel,
        "backend": "triton",
        "num_correct_trials": 5,
        "num_perf_trials": 100,
        "timeout": 30,
        "priority": "normal",
        "entry_point": "Model",
        "is_valid": False,
        "verbose_errors": True,
        "enable_profiling": True,
        "detect_decoy_kernel": True,
        "reference_backend": None,
        **rest,
    }


def reward_client(
    url: str, task: dict[str, Any], *, read_timeout: float = 10.0, patience: float = 60.0
) -> dict[str, Any]:
    """Post until it is taken (a timeout, 429 and 503 are tried again), poll the status, fetch the result."""
    with httpx.Client(
        timeout=httpx.Timeout(10.0, read=read_timeout), headers={"Content-Type": "application/json"}
    ) as http:
        for _ in range(10):
            try:
                answer = http.post(f"{url}/evaluate", json=task)
            except httpx.TimeoutException:
                continue
            if answer.status_code == 200:
                break
            if answer.status_code not in (429, 503):
                return {"status": "failed", "error_message": str(answer.status_code)}
            time.sleep(0.2)
        started = time.monotonic()
        while time.monotonic() - started < patience:
            status = http.get(f"{url}/status/{task['task_id']}").json()
            if status["status"] == "completed":
                return http.get(f"{url}/results/{task['task_id']}").raise_for_status().json() | {"status": "completed"}
            if status["status"] in ENDED:
                return {"status": status["status"], "error_message": status["error_message"]}
            time.sleep(0.05)
    return {"status": "timeout"}


def weighted_reward(result: dict[str, Any]) -> tuple[float, float, float]:
    """Reward, time coverage and number coverage, from the fields that its trainer takes them from."""
    if result.get("status") != "completed" or result.get("decoy_kernel"):
        return -1.0, 0.0, 0.0
    metadata = result.get("metadata") or {}
    total = metadata.get("total_kernel_run_time_in_profiling_us", 0)
    number = metadata.get("num_total_kernels", 0)
    time_coverage = metadata["custom_kernel_cuda_time_in_profiling_us"] / total if total else 0.0
    number_coverage = metadata["num_custom_kernels"] / number if number else 0.0
    reward = 1.0 * result["correctness"] + 1.0 * (result["speedup"] >= 1.05) + time_coverage
    return reward, time_coverage, number_coverage


def test_a_passed_kernel_earns_what_its_verdict_says(url: str) -> None:
    result = reward_client(url, payload("passed_000001_ab12cd34", "passed kernel"))
    assert (result["compiled"], result["correctness"], result["decoy_kernel"]) == (True, True, False)
    assert (result["reference_runtime"], result["kernel_runtime"], result["speedup"]) == (2.0, 1.0, 2.0)
    assert result["error_message"] is None and result["completed_at"] and result["processing_time"] >= 0
    # The ratio is the judge's coverage (0.4), not what the profile sums up to (0.5).
    assert weighted_reward(result) == pytest.approx((2.4, 0.4, 2 / 3))


@pytest.mark.parametrize(
    ("kernel", "status", "compiled", "decoy", "code"),
    [
        ("compile_error x", "completed", False, False, "COMPILATION_ERROR"),
        ("incorrect x", "completed", True, False, "CORRECTNESS_ERROR"),
        ("runtime_error x", "completed", True, False, "RUNTIME_ERROR"),
        ("exploit x", "completed", True, True, "VALIDATION_ERROR"),
        ("timeout x", "timeout", False, False, "TIMEOUT_ERROR"),
        ("invalid_problem x", "failed", False, False, "VALIDATION_ERROR"),
        ("infrastructure_error x", "failed", False, False, "SYSTEM_ERROR"),
    ],
)
def test_every_verdict_has_a_word_there(
    url: str, kernel: str, status: str, compiled: bool, decoy: bool, code: str
) -> None:
    task_id = kernel.split()[0]
    assert reward_client(url, payload(task_id, kernel))["status"] == status
    result = httpx.get(f"{url}/results/{task_id}").json()
    found = (result["status"], result["compiled"], result["correctness"], result["decoy_kernel"], result["error_code"])
    assert found == (status, compiled, False, decoy, code)
    # Its rewards compare these as numbers: they are never null once a verdict is there.
    assert (result["speedup"], result["kernel_runtime"], result["reference_runtime"]) == (0.0, -1.0, -1.0)


def test_a_post_that_its_client_gave_up_is_the_same_task(url: str) -> None:
    task = payload("slow", "sleep 2.5 slow")
    result = reward_client(url, task, read_timeout=1.0)
    assert result["status"] == "completed"
    record = httpx.get(f"{url}/v1/tasks/slow").json()
    assert record["attempts"] == 1
    conflict = httpx.post(f"{url}/evaluate", json=payload("slow", "other code"))
    assert conflict.status_code == 409


def test_a_post_is_answered_before_its_client_gives_up(url: str) -> None:
    answer = httpx.post(f"{url}/evaluate", json=payload("held", "sleep 3 held", timeout=0.5), timeout=2.5)
    assert answer.status_code == 200 and answer.json()["status"] == "processing"
    assert httpx.get(f"{url}/results/held").status_code == 404


def test_its_reward_client_which_polls_is_not_held(tmp_path: Path) -> None:
    """A post that breaks off, because the service dies, it takes for a failure of the kernel; a poll it sends again."""

    async def test() -> None:
        executor = TextExecutor()
        async with running(tmp_path, executor) as r:
            polled = payload("polled", "wait", timeout=3000)
            answer = (await r.http.post("/evaluate", json=polled)).json()
            assert answer["status"] in ("pending", "processing")
            others = {name: value for name, value in polled.items() if name != "detect_decoy_kernel"}
            held = asyncio.create_task(r.http.post("/evaluate", json=others | {"task_id": "held"}))
            await until(lambda: len(executor.seen) == 2)
            executor.release.set()
            assert (await held).json()["status"] == "completed"

    drive(test)


def test_a_kill_between_post_and_verdict_costs_its_client_nothing(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path) as first:
        port = first.url.rpartition(":")[2]
        for i in range(20):
            answer = httpx.post(f"{first.url}/evaluate", json=payload(f"t{i}", f"sleep 2 {i}"), timeout=30)
            assert answer.json()["status"] in ("pending", "processing")
        first.kill()
    with ServiceProcess(tmp_path, "--port", port) as second:
        assert {reward_client(second.url, payload(f"t{i}", f"sleep 2 {i}"))["status"] for i in range(20)} == {
            "completed"
        }
        assert second.stop() == 0


def test_a_post_waits_for_room_in_a_full_queue(tmp_path: Path) -> None:
    """Its client posts three times within some ten seconds, and then waits for a task that nobody has."""

    async def test() -> None:
        executor = TextExecutor(num_slots=1)
        async with running(tmp_path, executor, max_queued=1) as r:
            assert (await r.http.post("/evaluate", json=payload("running", "wait"))).status_code == 200
            assert (await r.http.post("/evaluate", json=payload("queued", "passed"))).status_code == 200
            refused = await r.http.post("/evaluate", json=payload("hurried", "passed", timeout=0.1))
            assert refused.status_code == 429 and int(refused.headers["retry-after"]) > 0
            late = asyncio.create_task(r.http.post("/evaluate", json=payload("late", "passed", timeout=300)))
            batch = {"batch_id": "b", "tasks": [payload("later", "incorrect", timeout=300)]}
            later = asyncio.create_task(r.http.post("/evaluate/batch", json=batch))
            done, _ = await asyncio.wait({late, later}, timeout=1.0)
            assert not done
            executor.release.set()
            assert (await late).json()["status"] in ("pending", "processing", "completed")
            assert (await later).json()["completed_tasks"] == 1

    drive(test)


def test_what_was_asked_for_is_what_is_judged(tmp_path: Path) -> None:
    async def test() -> None:
        executor = TextExecutor()
        async with running(tmp_path, executor) as r:
            odd = payload("a", "passed", entry_point="Net", reference_backend="torch_compile", num_correct_trials=10)
            odd |= {"reference_code": "class Net(object): pass", "backend": "cuda", "force_refresh": True, "uuid": "u"}
            assert (await r.http.post("/evaluate", json=odd)).json()["correctness"] is True
            (job,) = executor.seen
            assert (job.candidate.entry_point, job.candidate.language) == ("NetNew", "cuda")
            assert (job.protocol, job.baseline, job.fresh, job.timeout) == ("strict", "compile", True, 30.0)
            scope: dict[str, Any] = {}
            exec(job.problem.source, scope)
            assert issubclass(scope["Model"], scope["Net"])

    drive(test)


def test_bad_fields_are_422_and_unknown_ones_ignored(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as r:
            bad: list[dict[str, Any]] = [
                {"backend": "opencl"},
                {"num_correct_trials": 0},
                {"timeout": -1},
                {"priority": "urgent"},
                {"entry_point": "Model; import os"},
                {"task_id": "../x"},
                {"kernel_code": None},
                {"workflow": "other"},
            ]
            for fields in bad:
                refused = await r.http.post("/evaluate", json=payload("a", "passed") | fields)
                assert refused.status_code == 422 and next(iter(fields)) in refused.json()["detail"]
            fine = await r.http.post("/evaluate", json=payload("a", "passed") | {"anything": {"else": 1}})
            assert fine.status_code == 200

    drive(test)


def test_batches_workflows_and_the_rest(tmp_path: Path) -> None:
    async def test() -> None:
        executor = TextExecutor()
        async with running(tmp_path, executor) as r:
            tasks = [payload(f"t{i}", word) for i, word in enumerate(("passed", "incorrect", "infrastructure_error"))]
            batch = (await r.http.post("/evaluate/batch", json={"batch_id": "b", "tasks": tasks})).json()
            assert (batch["total_tasks"], batch["completed_tasks"], batch["failed_tasks"]) == (3, 2, 1)
            assert [result["task_id"] for result in batch["results"]] == ["t0", "t1", "t2"]
            envelope = {"workflow": "kernelbench", "task_id": "w", "payload": payload("ignored", "passed")}
            flow = (await r.http.post("/workflow/submit", json=envelope)).json()
            assert flow["task_id"] == "w" and flow["result"]["speedup"] == 2.0
            assert (await r.http.get("/workflow/results/w")).json() == flow
            assert (await r.http.get("/workers/status")).json()["cpu"]["online"] is True
            assert (await r.http.get("/queue/status")).json()["completed"] == 4
            assert (await r.http.get("/health")).json()["status"] == "healthy"
            await r.http.post(
                "/v1/tasks",
                json={"id": "c", "job": {"problem": {"name": "p", "source": "x"}, "candidate": {"source": "wait"}}},
            )
            await until(lambda: r.service.states["running"] == 1)
            assert (await r.http.delete("/tasks/c")).status_code == 200
            assert (await r.http.delete("/tasks/c")).status_code == 404
            assert (await r.http.get("/status/c")).json()["status"] == "cancelled"
            executor.release.set()

    drive(test)


def test_a_waiting_task_is_told_how_many_of_its_client_go_before_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, TextExecutor(num_slots=1)) as r:
            tasks = [("runs", "normal"), ("a", "normal"), ("b", "low"), ("c", "high"), ("d", "normal")]
            for name, priority in tasks:
                body = {"id": name, "priority": priority, "job": order(f"wait {name}")["job"]}
                await r.http.post("/v1/tasks", json=body)
            other = order("wait other", id="others")
            await r.http.post("/v1/tasks", json=other, headers={"X-Dojo-Client": "another"})
            await until(lambda: r.service.states["running"] == 1)
            positions = {"c": 0, "a": 1, "d": 2, "b": 3, "others": 0, "runs": None}
            for name, position in positions.items():
                assert (await r.http.get(f"/status/{name}")).json()["queue_position"] == position
                assert (await r.http.get(f"/v1/tasks/{name}")).json()["queue_position"] == position
            await r.http.delete("/v1/tasks/a")
            assert (await r.http.get("/status/b")).json()["queue_position"] == 2
            r.executor.release.set()
            await until(lambda: r.service.states["done"] == 5)
            assert (await r.http.get("/status/b")).json()["queue_position"] is None

    drive(test)


def test_a_task_for_a_device_that_is_not_there_is_refused_and_not_a_failure(tmp_path: Path) -> None:
    """Its trainer cannot mask a `failed`. One that is ill is waited for."""
    executor = TextExecutor(("cuda:0", "node-1/cuda:1"))

    async def test() -> None:
        async with running(tmp_path, executor) as r:
            task = payload("away", "passed", device_preference="cuda:7", timeout=0.1)
            inside = {"payload": payload("away", "passed", device_preference="cuda:7")}
            words = "device_preference: no device here serves 'cuda:7'; there are cuda:0, node-1/cuda:1"
            asked = [("/evaluate", task, ""), ("/workflow/submit", inside, "")]
            asked += [("/evaluate/batch", {"batch_id": "b", "tasks": [payload("x", "passed"), task]}, "tasks.1.")]
            for path, body, place in asked:
                answer = await r.http.post(path, json=body)
                assert (answer.status_code, answer.json()["detail"]) == (422, place + words)
            assert (await r.http.get("/v1/tasks")).json()["tasks"] == []
            executor.is_healthy = False
            for name in ("cuda:0", "cuda:1", "auto"):
                good = payload(f"there-{name}", "passed", device_preference=name)
                assert (await r.http.post("/evaluate", json=good)).status_code == 200

    drive(test)
