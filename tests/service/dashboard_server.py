"""A real server on a real socket, in a thread, with an executor that gives the verdicts that a test wants to see."""

from __future__ import annotations

import queue
import signal
import socket
import threading
import time
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from kerneldojo.pool.executor import DeviceState
from kerneldojo.schema import Evaluation, Job
from kerneldojo.service import ServiceConfig, create_app
from kerneldojo.service.core import Service
from kerneldojo.service.server import Server


class ShownExecutor:
    """Ends each job with the verdict that `verdicts` has for its problem's name; without one it runs on."""

    num_slots = 6

    def __init__(self, devices: Sequence[DeviceState] = (DeviceState(name="model:h100", kind="model"),)) -> None:
        self.verdicts: dict[str, Evaluation] = {}
        self.shown = tuple(devices)
        self._open: queue.Queue[Future[Evaluation]] = queue.Queue()

    def submit(self, job: Job) -> Future[Evaluation]:
        future: Future[Evaluation] = Future()
        future.set_running_or_notify_cancel()
        verdict = self.verdicts.get(job.problem.name)
        if verdict is not None:
            future.set_result(verdict)
        else:
            self._open.put(future)
        return future

    def finish(self, verdict: Evaluation) -> None:
        """End the job that has run longest; a task can be seen to wait before its job is here."""
        self._open.get(timeout=60).set_result(verdict)

    def devices(self) -> Sequence[DeviceState]:
        return self.shown

    def close(self, *, drain: bool = True, patience: float | None = None) -> None:
        while not self._open.empty():
            self._open.get().cancel()


class Served:
    """A running service, an HTTP client of it, and its executor."""

    def __init__(self, url: str, http: httpx.Client, executor: ShownExecutor, service: Service) -> None:
        self.url = url
        self.http = http
        self.executor = executor
        self.service = service

    def submit(self, id: str, *, problem: str = "p", reference: str = "x", code: str = "y", **rest: Any) -> None:
        job = {"problem": {"name": problem, "source": reference}, "candidate": {"source": code}}
        answer = self.http.post("/v1/tasks", json={"id": id, "job": job | rest.pop("job", {})}, **rest)
        assert answer.status_code == 202, answer.text

    def judge(self, id: str, verdict: Evaluation, *, problem: str | None = None, **rest: Any) -> None:
        """Submit, and wait for the verdict."""
        name = problem or id
        self.executor.verdicts[name] = verdict
        self.submit(id, problem=name, **rest)
        assert self.http.get(f"/v1/tasks/{id}?wait=30").json()["state"] == "done"


@contextmanager
def served(
    folder: Path, *, executor: ShownExecutor | None = None, token: str = "", port: int = 0, **settings: Any
) -> Generator[Served]:
    executor = executor or ShownExecutor()
    config = ServiceConfig(store=folder / "store.db", grace_seconds=0.1, **settings)
    app = create_app(config, executor)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    settings = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5)
    server = Server(settings, app.state.service, lambda url: None)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.02)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        with httpx.Client(base_url=url, headers=headers, timeout=40) as http:
            yield Served(url, http, executor, app.state.service)
    finally:
        if server.started:
            loop = server.servers[0].get_loop()
            loop.call_soon_threadsafe(server.handle_exit, signal.SIGTERM, None)  # drains
        thread.join(30)
        listener.close()
