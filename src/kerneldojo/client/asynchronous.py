"""The client that awaits; the same calls as `Client`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

import httpx

from kerneldojo.client import steps
from kerneldojo.client.attempts import Pause, Reply, Retries, Setback, Steps
from kerneldojo.client.connection import Absence, arguments
from kerneldojo.client.events import Event, Events
from kerneldojo.client.feed import Feed
from kerneldojo.client.known import Known
from kerneldojo.client.listening import listen_awaiting
from kerneldojo.client.many import Window
from kerneldojo.client.pools import Pools
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


class AsyncClient:
    """A service elsewhere; for one event loop, an asynchronous context manager."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        token: str | None = None,
        name: str | None = None,
        retries: Retries | None = None,
    ) -> None:
        """`name` is the queue that tasks go to where the service has no tokens (else the token's name decides)."""
        self._pools = Pools(arguments(url, token, name))
        self._retries = retries or Retries()
        self._absence = Absence(url, self._retries.give_up_seconds)

    async def judge(
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
        """The verdict on one candidate, however long it takes; see `Client.judge`."""
        job = steps.job_of(problem, candidate, settings)
        submission = steps.submission_of(job, id, priority, deadline_seconds)
        return await self._run(steps.judge(submission, self._retries, wait_seconds))

    async def judge_many(
        self,
        jobs: Iterable[Job],
        *,
        window: int = 512,
        priority: Priority = "normal",
        deadline_seconds: float | None = None,
        prefix: str | None = None,
    ) -> AsyncIterator[tuple[int, Evaluation]]:
        """Verdicts as they are reached, each with the index of its job; see `Client.judge_many`."""
        out = Window(jobs, window, priority, deadline_seconds, prefix)
        setback = Setback(self._retries)
        while True:
            submissions = out.next_submissions()
            if submissions:
                await self._run(steps.submit_many(submissions, self._retries))
            if out.is_done:
                out.finish()
                return
            async with aclosing(listen_awaiting(self._pools, out, setback, self._absence)) as results:
                async for found in results:
                    yield found
                    if out.wants_more:
                        break

    async def submit(
        self,
        job: Job,
        *,
        id: str | None = None,
        priority: Priority = "normal",
        deadline_seconds: float | None = None,
    ) -> Acknowledgement:
        """Have one task accepted; its id is in the acknowledgement, and from then on nothing is lost."""
        return await self._run(steps.submit(steps.submission_of(job, id, priority, deadline_seconds), self._retries))

    async def submit_many(
        self,
        jobs: Sequence[Job],
        *,
        ids: Sequence[str] | None = None,
        prefix: str | None = None,
        priority: Priority = "normal",
        deadline_seconds: float | None = None,
    ) -> list[Acknowledgement]:
        """Have many accepted, in their order; see `Client.submit_many`."""
        submissions = steps.submissions_of(jobs, ids, prefix, priority, deadline_seconds)
        return await self._run(steps.submit_many(submissions, self._retries))

    async def results(self, ids: Iterable[str]) -> AsyncIterator[TaskRecord]:
        """The tasks of these ids, each as it ends; see `Client.results`."""
        async for record in self._follow(Known(ids)):
            yield record

    async def events(self) -> AsyncIterator[Event]:
        """What happens at the service, for ever; see `Client.events`."""
        async for event in self._follow(Events()):
            yield event

    async def _follow(self, feed: Feed[T]) -> AsyncGenerator[T]:
        setback = Setback(self._retries)
        while not feed.is_done:
            async with aclosing(listen_awaiting(self._pools, feed, setback, self._absence)) as told:
                async for one in told:
                    yield one

    async def get(self, id: str, *, with_job: bool = False) -> TaskRecord:
        """One task as it is now."""
        return await self._run(steps.get(id, self._retries, with_job=with_job))

    async def wait(self, id: str, timeout: float | None = None) -> TaskRecord:
        """One task when it has ended."""
        return await self._run(steps.wait(id, self._retries, timeout))

    async def cancel(self, id: str, *, if_queued: bool = False) -> TaskRecord:
        """End a task without a verdict, or with `if_queued` only one that has not begun; the task as it is then."""
        return await self._run(steps.cancel(id, self._retries, if_queued=if_queued))

    async def tasks(
        self,
        *,
        limit: int = 50,
        before: int | None = None,
        state: TaskState | None = None,
        status: Status | None = None,
        client: str | None = None,
    ) -> TaskPage:
        """Tasks, newest first; see `Client.tasks`."""
        only = {"before": before, "state": state, "status": status, "client": client}
        return await self._run(steps.page(self._retries, limit, **only))

    async def overview(self) -> Overview:
        """Devices, queue, rate."""
        return await self._run(steps.overview(self._retries))

    async def health(self) -> Health:
        """How the service is; nothing is retried."""
        return await self._run(steps.health())

    async def _run(self, script: Steps[T]) -> T:
        reply: Reply = None
        try:
            step = next(script)
            while True:
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                    reply = None
                else:
                    try:
                        async with self._pools.one(waits=step.waits) as http:
                            reply = await http.request(
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

    async def close(self) -> None:
        """Close the connections; what was submitted goes on."""
        await self._pools.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
