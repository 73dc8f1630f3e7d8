"""The client that blocks."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, TypeVar

import httpx

from kerneldojo.client import steps
from kerneldojo.client.attempts import Pause, Reply, Retries, Setback, Steps, passing_trouble
from kerneldojo.client.connection import STREAM_TIMEOUT, Absence, arguments
from kerneldojo.client.errors import Overloaded
from kerneldojo.client.lines import Lines
from kerneldojo.client.many import ENDED_AT_ONCE, Window
from kerneldojo.schema import Candidate, Evaluation, Job, Problem
from kerneldojo.service.records import (
    Acknowledgement,
    Health,
    Overview,
    Priority,
    TaskPage,
    TaskRecord,
    TaskState,
)

T = TypeVar("T")


class Client:
    """A service elsewhere; thread-safe, a context manager."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        token: str | None = None,
        name: str | None = None,
        retries: Retries | None = None,
    ) -> None:
        """`name` is the queue that tasks go to where the service has no tokens (else the token's name decides)."""
        self._http = httpx.Client(**arguments(url, token, name))
        self._retries = retries or Retries()
        self._absence = Absence(url, self._retries.give_up_seconds)

    def judge(
        self,
        problem: Problem,
        candidate: Candidate,
        *,
        id: str | None = None,
        priority: Priority = "normal",
        deadline_seconds: float | None = None,
        wait_seconds: float | None = None,
        **settings: Any,
    ) -> Evaluation:
        """The verdict on one candidate, however long it takes.

        Args:
            problem: the reference, in KernelBench's format.
            candidate: the answer.
            id: names the task; calling again with the same id finds the same task. A new one by default.
            priority: orders the tasks of this client.
            deadline_seconds: a task that has not started by then ends as `infrastructure_error`.
            wait_seconds: how long to wait for the verdict; the task goes on after that.
            settings: the other fields of `schema.Job` (`device`, `protocol`, `baseline`, `precision`, `timeout`, ...).

        Raises:
            TaskCancelled: someone cancelled it.
            WaitTimeout: there is no verdict after `wait_seconds`.
            ClientError: the service refused it or cannot be reached.
            pydantic.ValidationError: a setting is wrong.
        """
        job = steps.job_of(problem, candidate, settings)
        submission = steps.submission_of(job, id, priority, deadline_seconds)
        return self._run(steps.judge(submission, self._retries, wait_seconds))

    def judge_many(
        self,
        jobs: Iterable[Job],
        *,
        window: int = 512,
        priority: Priority = "normal",
        deadline_seconds: float | None = None,
        prefix: str | None = None,
    ) -> Iterator[tuple[int, Evaluation]]:
        """Verdicts as they are reached, each with the index of its job.

        Args:
            jobs: read as needed, so it may be endless.
            window: tasks that are with the service at once.
            priority: orders the tasks of this client.
            deadline_seconds: as in `judge`, for each task.
            prefix: names the tasks `PREFIX-0`, `PREFIX-1`, ...; the same call after a crash goes on where it was.

        Raises:
            ClientError: as in `judge`; what was submitted goes on.
            ValueError: the window or the prefix is none; nothing was submitted.
        """
        out = Window(jobs, window, priority, deadline_seconds, prefix)
        setback = Setback(self._retries)
        while True:
            submissions = out.next_submissions()
            if submissions:
                self._run(steps.submit_many(submissions, self._retries))
            if out.is_done:
                return
            with closing(self._collect(out, setback)) as results:
                for found in results:
                    yield found
                    if out.wants_more:
                        break

    def _collect(self, out: Window, setback: Setback) -> Generator[tuple[int, Evaluation]]:
        lines = Lines()
        lost: httpx.RequestError | None = None
        is_heard = False
        try:
            with self._http.stream("POST", "/v1/results", content=out.collection(), timeout=STREAM_TIMEOUT) as reply:
                if reply.status_code >= 400:
                    reply.read()
                if (trouble := passing_trouble(reply)) is None:
                    for data in reply.iter_bytes():
                        # Also where nothing has ended yet: a service that says so is there.
                        is_heard = True
                        setback.forget()
                        self._absence.ends()
                        for line in lines.feed(data):
                            found = out.take(line)
                            if found is not None:
                                yield found
        except httpx.RequestError as error:
            trouble, lost = passing_trouble(error), error
        if trouble is not None:
            seconds = setback.pause(*trouble).seconds
            if lost is not None:
                self._absence.begins(lost)
            time.sleep(seconds)
        elif not out.is_done:
            # The stream ended early: the service drains, or something between that will never say more.
            time.sleep(0.5 if is_heard else setback.pause(Overloaded(ENDED_AT_ONCE)).seconds)

    def submit(
        self,
        job: Job,
        *,
        id: str | None = None,
        priority: Priority = "normal",
        deadline_seconds: float | None = None,
    ) -> Acknowledgement:
        """Have one task accepted; its id is in the acknowledgement, and from then on nothing is lost."""
        return self._run(steps.submit(steps.submission_of(job, id, priority, deadline_seconds), self._retries))

    def submit_many(self, jobs: Sequence[Job], *, priority: Priority = "normal") -> list[Acknowledgement]:
        """Have many accepted, in their order."""
        submissions = [steps.submission_of(job, None, priority, None) for job in jobs]
        return self._run(steps.submit_many(submissions, self._retries))

    def get(self, id: str, *, with_job: bool = False) -> TaskRecord:
        """One task as it is now."""
        return self._run(steps.get(id, self._retries, with_job=with_job))

    def wait(self, id: str, timeout: float | None = None) -> TaskRecord:
        """One task when it has ended."""
        return self._run(steps.wait(id, self._retries, timeout))

    def cancel(self, id: str, *, if_queued: bool = False) -> TaskRecord:
        """End a task without a verdict, or with `if_queued` only one that has not begun; the task as it is then."""
        return self._run(steps.cancel(id, self._retries, if_queued=if_queued))

    def tasks(self, *, limit: int = 50, before: int | None = None, state: TaskState | None = None) -> TaskPage:
        """Tasks, newest first."""
        return self._run(steps.page(self._retries, limit, before, state))

    def overview(self) -> Overview:
        """Devices, queue, rate."""
        return self._run(steps.overview(self._retries))

    def health(self) -> Health:
        """How the service is; nothing is retried."""
        return self._run(steps.health())

    def _run(self, script: Steps[T]) -> T:
        reply: Reply = None
        try:
            step = next(script)
            while True:
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                    reply = None
                else:
                    try:
                        reply = self._http.request(
                            step.method, step.path, params=step.params, content=step.body, timeout=step.timeout
                        )
                    except httpx.RequestError as error:
                        reply = error
                    else:
                        self._absence.ends()
                step = script.send(reply)
                if isinstance(step, Pause) and isinstance(reply, httpx.RequestError):
                    self._absence.begins(reply)
        except StopIteration as end:
            return end.value

    def close(self) -> None:
        """Close the connections; what was submitted goes on."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
