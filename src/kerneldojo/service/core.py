"""The service without HTTP: accepts tasks, has them judged, tells those who wait. Everything runs on one event loop."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from kerneldojo.pool.executor import Executor
from kerneldojo.service import endings, store
from kerneldojo.service.acceptance import Busy, Draining, Oversized, acknowledge, new_task
from kerneldojo.service.clients import Clients
from kerneldojo.service.config import ServiceConfig
from kerneldojo.service.dispatch import Dispatcher
from kerneldojo.service.housekeeping import keep_house
from kerneldojo.service.journal import Journal, StoreError, Write
from kerneldojo.service.lookout import Lookout
from kerneldojo.service.onlooker import Onlooker
from kerneldojo.service.queue import Entry
from kerneldojo.service.reader import Reader
from kerneldojo.service.records import (
    Acknowledgement,
    Submission,
    TaskState,
)
from kerneldojo.service.store import Ending, Insertion, NewTask, Store
from kerneldojo.service.tally import Tally
from kerneldojo.service.viewer import Viewer
from kerneldojo.service.views import summary_of
from kerneldojo.service.waiting import Waiters

log = logging.getLogger(__name__)


class Service:
    """Tasks from acceptance to verdict. Takes ownership of the executor: `stop` closes it."""

    def __init__(self, config: ServiceConfig, executor: Executor) -> None:
        self.config = config
        self.executor = executor
        self.waiters = Waiters(config.max_waiting, lambda ids: self.reader.states(ids))
        self.onlookers: set[Onlooker] = set()
        self.tally = Tally()
        self.clients = Clients()
        self.states: Counter[str] = Counter()
        self.statuses: Counter[str] = Counter()
        self.is_draining = False
        self.is_hurried = False
        """Set to let a drain end now, whatever still runs."""
        self.is_started = False
        self.is_stopped = False
        self._storage: Store | None = None
        self.started_at = time.monotonic()
        self._reserved = [0, 0]
        self._ending: set[str] = set()
        """Tasks whose ending waits for the disk."""
        self.lookout = Lookout(self)

    # Life

    def open(self) -> None:
        """Open the store and read what was left to do; `start` does it where this was not called.

        Raises:
            ValueError: it cannot be opened, or is damaged (one line).
        """
        if self._storage is not None:
            return
        storage = Store(self.config.store)
        try:
            # Here rather than as the application starts, where a server has nothing but a traceback for what fails.
            self._worn_out = store.recover(storage.writer, self.config.max_attempts)
            self.reader: Reader = storage.reader()
            self.count_states()
            worn_out = set(self._worn_out)
            self._left = [entry for entry in self.reader.unfinished() if entry.id not in worn_out]
        except sqlite3.Error as error:
            storage.close()
            raise ValueError(f"cannot open the store {self.config.store}: {error}") from None
        self._storage = storage

    @property
    def storage(self) -> Store:
        """The open store."""
        assert self._storage is not None
        return self._storage

    async def start(self) -> None:
        """Queue again what an earlier service left, and begin.

        Raises:
            ValueError: the store cannot be opened (one line).
        """
        if self.is_started:
            raise RuntimeError("this service has been started already; make another one")
        self.is_started = True
        loop = asyncio.get_running_loop()
        self.open()
        self.journal = Journal(self.storage.writer, lambda call: _deliver(loop, call))
        self.dispatcher = Dispatcher(
            self.executor,
            self.storage,
            self.journal,
            devices=lambda: self.lookout.known_devices,
            on_start=self._started,
            on_return=self._returned,
            on_end=self._reached,
        )
        for task_id in self._worn_out:
            reason = "the service died every time while this was judged"
            self.write_ending(endings.failed(task_id, reason), (TaskState.QUEUED,))
        for entry in self._left:
            self.dispatcher.queue.push(entry)
        self._left = []
        await self.lookout.devices()
        self._ticking = asyncio.create_task(keep_house(self))
        log.info("%d tasks were left to do in %s", len(self.dispatcher.queue), self.config.store)
        self.dispatcher.pump()

    async def drain(self) -> None:
        """Take no more work, start none, and wait for what runs, for the grace time at most."""
        self.is_draining = True
        self.dispatcher.is_stopped = True
        deadline = time.monotonic() + self.config.grace_seconds
        log.info("draining: %d tasks run, %d wait in the store", len(self.dispatcher.runs), len(self.dispatcher.queue))
        while (self.dispatcher.runs or len(self.journal)) and time.monotonic() < deadline and not self.is_hurried:
            await asyncio.sleep(0.05)
        if self.dispatcher.runs:
            log.info("%d tasks still run: they are ended, and queued again", len(self.dispatcher.runs))
        self.waiters.dismiss()
        for onlooker in self.onlookers:
            onlooker.dismiss()

    async def stop(self) -> None:
        """Close the executor and the store; what was not judged stays in it."""
        self.is_draining = True
        self._ticking.cancel()
        with suppress(asyncio.CancelledError):
            await self._ticking
        await self.dispatcher.stop()
        await asyncio.to_thread(self.journal.close)
        self.reader.close()
        self.storage.close()
        self.is_stopped = True

    # Work

    async def submit(self, submissions: Sequence[Submission], client: str | Viewer) -> list[Acknowledgement]:
        """Accept tasks of `client`: when this returns they are on disk.

        Raises:
            Draining: the service is about to stop.
            Busy: the queue is full.
            Oversized: these never fit into it.
            StoreError: the disk refused.
        """
        if self.is_draining:
            raise Draining
        if not self.storage.is_in_place():
            raise StoreError("the store's file was removed or replaced")
        now = time.time()
        viewer = Viewer(client, sees_all=False) if isinstance(client, str) else client
        tasks = [new_task(submission, viewer, now) for submission in submissions]
        num_bytes = sum(task.num_bytes for task in tasks)
        self._check_room(tasks, num_bytes)
        self._reserved[0] += len(tasks)
        self._reserved[1] += num_bytes

        def settle(inserted: list[Insertion]) -> None:
            # Runs whether or not the request is still there: what is on disk is queued.
            self._reserved[0] -= len(tasks)
            self._reserved[1] -= num_bytes
            if not isinstance(inserted, StoreError):
                self._accepted(tasks, inserted)

        inserted = await self.write(lambda connection: store.insert(connection, tasks), settle)
        return [acknowledge(task, insertion) for task, insertion in zip(tasks, inserted, strict=True)]

    def _check_room(self, tasks: Sequence[NewTask], num_bytes: int) -> None:
        queue, config = self.dispatcher.queue, self.config
        fits = (
            len(queue) + self._reserved[0] + len(tasks) <= config.max_queued
            and queue.num_bytes + self._reserved[1] + num_bytes <= config.max_queued_bytes
        )
        # A retry of what was accepted already needs no room.
        if not fits and len(self.reader.states({task.id for task in tasks})) < len({task.id for task in tasks}):
            if len(tasks) > config.max_queued or num_bytes > config.max_queued_bytes:
                most = f"{config.max_queued} tasks with {config.max_queued_bytes} bytes"
                raise Oversized(f"{len(tasks)} tasks with {num_bytes} bytes at once: at most {most} may wait here")
            raise Busy(f"the queue is full ({len(queue)} tasks wait)", self.retry_after())

    def retry_after(self) -> int:
        """Seconds after which there may be room: from the rate at which tasks end."""
        rate = self.tally.per_minute(time.time()) / 60
        return max(1, min(30, round(len(self.dispatcher.queue) * 0.02 / rate))) if rate else 5

    def _accepted(self, tasks: Sequence[NewTask], inserted: Sequence[Insertion]) -> None:
        for task, insertion in zip(tasks, inserted, strict=True):
            if insertion.is_new:
                self.states["queued"] += 1
                self.dispatcher.push(
                    Entry(
                        task.id,
                        insertion.sequence,
                        task.client,
                        task.priority,
                        task.num_bytes,
                        task.problem_hash,
                        task.device,
                    )
                )
                self._publish(task.id)

    async def cancel(self, task_id: str, *, if_queued: bool = False) -> bool:
        """End a task without a verdict, queued or running, or only if it is `queued`; whether this ended it.

        Raises:
            StoreError: the disk refused.
        """
        from_states = (TaskState.QUEUED,) if if_queued else (TaskState.QUEUED, TaskState.RUNNING)

        def settle(source: TaskState | StoreError | None) -> None:
            if isinstance(source, TaskState):
                self._moved(task_id, TaskState.CANCELLED, source, self._client_of(task_id))
                self.dispatcher.cancel(task_id)

        apply = lambda connection: store.cancel(connection, task_id, from_states)  # noqa: E731
        return await self.write(apply, settle) is not None

    async def write(self, apply: Callable[[Any], Any], settle: Callable[[Any], None]) -> Any:
        """What `apply` returns, once it is on disk; `settle` is called before, even if nobody waits any more.

        Raises:
            StoreError: the disk refused.
        """
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def settle_both(result: Any) -> None:
            try:
                settle(result)
            finally:  # It is on disk: whoever waits hears so, whatever became of telling the others.
                if not done.done():
                    done.set_result(result)

        self.journal.put(Write(apply, settle_both, must_succeed=False))
        result = await done
        if isinstance(result, StoreError):
            raise result
        return result

    # What happens to tasks

    def _started(self, task_id: str) -> None:
        self.states["queued"] -= 1
        self.states["running"] += 1
        self._publish(task_id)

    def _returned(self, task_id: str) -> None:
        self.states["running"] -= 1
        self.states["queued"] += 1
        self._publish(task_id)

    def _reached(self, ending: Ending) -> None:
        self.write_ending(ending, (TaskState.RUNNING,))

    def expire(self, task_id: str) -> None:
        """End a queued task whose deadline has passed; once, however long the disk takes."""
        if task_id not in self._ending:
            self.write_ending(endings.expired(task_id), (TaskState.QUEUED,))

    def write_ending(self, ending: Ending, from_states: tuple[TaskState, ...]) -> None:
        """End a task if it is in one of `from_states`: on disk first, then for all who wait."""

        self._ending.add(ending.id)
        client = self._client_of(ending.id)  # Now: when its ending is on disk it may be in memory no more.

        def settle(changed: bool) -> None:
            self._ending.discard(ending.id)
            if changed is True:
                self.dispatcher.queue.remove(ending.id)
                self.statuses[ending.columns["status"]] += 1
                self._moved(ending.id, TaskState.DONE, from_states[0], client)

        apply = lambda connection: store.finish(connection, ending, from_states)  # noqa: E731
        self.journal.put(Write(apply, settle, must_succeed=True))

    def _client_of(self, task_id: str) -> str:
        if (client := self.dispatcher.client_of(task_id)) is not None:
            return client
        row = self.reader.summary(task_id)
        return "" if row is None else row["client"]

    def _moved(self, task_id: str, state: TaskState, source: TaskState, client: str) -> None:
        # What the store says it was: a task that is being started is in memory ahead of it.
        self.states[source] -= 1
        self.states[state] += 1
        self.tally.count(time.time())
        self.clients.count(client)
        self.waiters.tell(task_id)
        self._publish(task_id)

    def _publish(self, task_id: str) -> None:
        if not self.onlookers:
            return
        try:
            row = self.reader.summary(task_id)
        except sqlite3.Error as error:
            # Nothing that must be done depends on who looks on.
            self.lookout.note(error)
            return
        if row is not None:
            summary = summary_of(row)
            for onlooker in self.onlookers:
                if onlooker.viewer.sees(summary.client):
                    onlooker.offer("task", summary)

    def count_states(self) -> None:
        """Count what is in the store anew."""
        self.states.clear()
        self.statuses.clear()
        for state, status, number in self.reader.counts():
            self.states[state] += number
            if status is not None:
                self.statuses[status] += number


def _deliver(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    # A loop that has ended has nobody left to tell.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call)
