"""The client that blocks."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, TypeVar

import httpx

from kerneldojo.client import steps
from kerneldojo.client.attempts import Pause, Reply, Retries, Setback, Steps
from kerneldojo.client.connection import Absence, arguments
from kerneldojo.client.events import Event, Events
from kerneldojo.client.feed import Feed
from kerneldojo.client.known import Known
from kerneldojo.client.listening import listen
from kerneldojo.client.many import Window
from kerneldojo.schema import Candidate, Evaluation, Job, Problem, Status
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
            TaskCancelled: someone cancelled some of them; raised once, after the verdicts of all others.
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
                out.finish()
                return
            with closing(listen(self._http, out, setback, self._absence)) as results:
                for found in results:
                    yield found
                    if out.wants_more:
                        break

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

    def submit_many(
        self,
        jobs: Sequence[Job],
        *,
        ids: Sequence[str] | None = None,
        prefix: str | None = None,
        priority: Priority = "normal",
        deadline_seconds: float | None = None,
    ) -> list[Acknowledgement]:
        """Have many accepted, in their order.

        Args:
            jobs: in as few requests as their size allows.
            ids: names the tasks, one for each job: calling again with the same finds the same tasks.
            prefix: names them `PREFIX-0`, `PREFIX-1`, ..., as `judge_many` does, which finds them again by it.
            priority: orders the tasks of this client.
            deadline_seconds: as in `judge`, for each task.

        Raises:
            Conflict: an id belongs to a task with another job; all others are accepted.
            ClientError: as in `judge`; what was accepted goes on.
            ValueError: the ids or the prefix are none; nothing was submitted.
        """
        submissions = steps.submissions_of(jobs, ids, prefix, priority, deadline_seconds)
        return self._run(steps.submit_many(submissions, self._retries))

    def results(self, ids: Iterable[str]) -> Iterator[TaskRecord]:
        """The tasks of these ids, each as it ends; of more than 10,000 the first so many, then the others.

        A cancelled one has no `evaluation`, and is no error here.

        Raises:
            NotFound: one of them does not exist.
            ClientError: the service cannot be reached.
        """
        return self._follow(Known(ids))

    def events(self) -> Iterator[Event]:
        """What happens at the service, for ever: a `TaskSummary` on each change of a task, an `Overview` each second.

        A lost connection is opened again. What went by meanwhile, or because this reads too slowly, is told as
        `Missed`: ask for what matters (`tasks`, `results`). Only tasks that this client may see are told of.

        Raises:
            ClientError: the service cannot be reached, or has too many readers already.
        """
        return self._follow(Events())

    def _follow(self, feed: Feed[T]) -> Generator[T]:
        setback = Setback(self._retries)
        while not feed.is_done:
            with closing(listen(self._http, feed, setback, self._absence)) as told:
                yield from told

    def get(self, id: str, *, with_job: bool = False) -> TaskRecord:
        """One task as it is now."""
        return self._run(steps.get(id, self._retries, with_job=with_job))

    def wait(self, id: str, timeout: float | None = None) -> TaskRecord:
        """One task when it has ended."""
        return self._run(steps.wait(id, self._retries, timeout))

    def cancel(self, id: str, *, if_queued: bool = False) -> TaskRecord:
        """End a task without a verdict, or with `if_queued` only one that has not begun; the task as it is then."""
        return self._run(steps.cancel(id, self._retries, if_queued=if_queued))

    def tasks(
        self,
        *,
        limit: int = 50,
        before: int | None = None,
        state: TaskState | None = None,
        status: Status | None = None,
        client: str | None = None,
    ) -> TaskPage:
        """Tasks, newest first: those below a number, in a state, with a verdict, of a client, as asked."""
        only = {"before": before, "state": state, "status": status, "client": client}
        return self._run(steps.page(self._retries, limit, **only))

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
