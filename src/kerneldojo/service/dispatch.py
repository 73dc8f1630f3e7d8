"""From the queue to the executor: keeps as many jobs with the executor as it has slots, and brings back verdicts.

All bookkeeping is on the event loop's thread. One more thread reads jobs from the store and hands them over, so that
an executor that is slow to accept never holds up a request. A task is marked as running on disk before it runs: so
the store knows how often a task has been there when the service died.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from kerneldojo.pool.executor import Choosy, DeviceState, Executor
from kerneldojo.schema import Evaluation, Job, Status
from kerneldojo.service import endings, store
from kerneldojo.service.journal import RETRY_SECONDS, Journal, StoreError, Write
from kerneldojo.service.places import Places
from kerneldojo.service.queue import Entry, FairQueue
from kerneldojo.service.reader import Reader
from kerneldojo.service.store import Ending, Store

log = logging.getLogger(__name__)

MAX_UNWRITTEN = 1000
"""Verdicts that may wait for the disk before no more tasks are started."""

MAX_READS = 120
"""Tries to read a job while the store says what may pass (it is locked, the disk did not answer): a minute of them."""


@dataclass(slots=True)
class Run:
    """One task that is with the executor, or on its way there."""

    entry: Entry
    since: float
    future: Future[Evaluation] | None = None
    is_cancelled: bool = False
    num_failed_reads: int = 0


class Dispatcher:
    """Owns the queue and what runs."""

    def __init__(
        self,
        executor: Executor,
        storage: Store,
        journal: Journal,
        *,
        devices: Callable[[], Sequence[DeviceState]],
        on_start: Callable[[str], None],
        on_return: Callable[[str], None],
        on_end: Callable[[Ending], None],
    ) -> None:
        """`devices` tells what is known of them without asking the executor, which may take its time.

        The others are called on the loop's thread: with each task started, each one queued again, and each verdict
        reached.
        """
        self._executor = executor
        self._choosy = executor if isinstance(executor, Choosy) else None
        self._journal = journal
        self._devices = devices
        self._places = Places()
        self._on_start = on_start
        self._on_return = on_return
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._hands = ThreadPoolExecutor(1, thread_name_prefix="dojo-dispatch")
        # Opened while there are files to be had: a task must not end because too many clients are connected.
        self._reader: Reader = storage.reader()
        self._running_clients: Counter[str] = Counter()
        self._running_devices: Counter[str] = Counter()
        """Tasks with the executor, by the device that each asked for."""
        self.queue = FairQueue()
        self.runs: dict[str, Run] = {}
        self.is_stopped = False
        """Set to start no more tasks."""
        self._is_ended = False
        self.is_broken = ""
        """Why the executor takes no more jobs; empty while it does."""
        self.moved_at = time.monotonic()
        """When something last started or ended."""

    def push(self, entry: Entry) -> None:
        """Queue a task and start what can be started."""
        if not self.queue:
            self.moved_at = time.monotonic()
        self.queue.push(entry)
        self.pump()

    def pump(self) -> None:
        """Start tasks while there are free slots, for each device as many as it has itself."""
        slots = self._executor.num_slots
        self._places.see(self._devices())
        while (
            len(self.runs) < slots
            and not self.is_stopped
            and not self.is_broken
            and len(self._journal) < MAX_UNWRITTEN
            and (entry := self.queue.pop(self._running_clients, self._rank, self._is_full)) is not None
        ):
            self._start(entry)

    def refusal(self, device: str) -> str:
        """Why a task that asks for `device` can never be served here, in one line; empty where it may be."""
        self._places.see(self._devices())
        return self._places.refusal(device)

    def running_clients(self) -> dict[str, int]:
        """Tasks with the executor, of each client that has any."""
        return dict(self._running_clients)

    def client_of(self, task_id: str) -> str | None:
        """Whose task it is; None where it neither waits nor runs."""
        run = self.runs.get(task_id)
        return self.queue.client_of(task_id) if run is None else run.entry.client

    @property
    def has_work(self) -> bool:
        """Whether a task waits that is sure to be served; not so one that asks for a machine that was lost."""
        return not all(map(self._places.is_lost, self.queue.devices()))

    def _is_full(self, device: str) -> bool:
        return self._places.is_full(device, self._running_devices)

    def _rank(self, problem_hash: str) -> int:
        """See `Choosy.rank`; of tasks on their way the executor has not heard, and they take what it has at hand."""
        if self._choosy is None:
            return 0
        coming = sum(run.future is None and run.entry.problem == problem_hash for run in self.runs.values())
        rank = self._choosy.rank(problem_hash)
        return max(1, rank) + coming if coming else rank

    def _start(self, entry: Entry) -> None:
        run = Run(entry, time.monotonic())
        self.runs[entry.id] = run
        self._running_clients[entry.client] += 1
        self._running_devices[entry.device] += 1

        def settle(started: bool | StoreError) -> None:
            if isinstance(started, StoreError):
                # Nothing has happened to it: it waits again, and the next tick tries again.
                self._forget(run)
                self.queue.push(entry)
            elif not started or run.is_cancelled:
                # One whose deadline has passed is housekeeping's to end.
                self._release(run)
            elif self._is_ended:
                self._given_back(run)
            else:
                self.moved_at = time.monotonic()
                self._on_start(entry.id)
                self._hands.submit(self._hand_over, run)

        self._journal.put(Write(lambda connection: store.start(connection, entry.id), settle, must_succeed=False))

    def _hand_over(self, run: Run) -> None:
        """Give a job to the executor (on the dispatching thread)."""
        entry = run.entry
        try:
            job = Job.model_validate_json(self._reader.job(entry.sequence) or "")
        except Exception as error:
            # What may pass is an OperationalError, a damaged file another one.
            if isinstance(error, sqlite3.OperationalError) and run.num_failed_reads + 1 < MAX_READS:
                log.warning("the job of task %s cannot be read now: %s", entry.id, error)
                self._call(self._read_later, run)
                return
            log.exception("the job of task %s cannot be read", entry.id)
            self._call(self._end, run, endings.failed(entry.id, "the stored job cannot be read"))
            return
        try:
            future = self._executor.submit(job)
        except ValueError as error:
            self._call(self._end, run, endings.refused(entry.id, " ".join(str(error).split())[:500]))
        except Exception as error:
            log.exception("the executor took no job")
            self._call(self._break, run, f"the executor takes no jobs ({type(error).__name__})")
        else:
            run.future = future
            if run.is_cancelled:
                future.cancel()
            future.add_done_callback(lambda done: self._returned(run, done))

    def _read_later(self, run: Run) -> None:
        run.num_failed_reads += 1

        def read() -> None:
            if run.is_cancelled:
                self._release(run)
            elif not self._is_ended:  # else it is queued again already
                self._hands.submit(self._hand_over, run)

        self._loop.call_later(RETRY_SECONDS, read)

    def _returned(self, run: Run, future: Future[Evaluation]) -> None:
        """A future is done (on whatever thread the executor has)."""
        if future.cancelled():
            self._call(self._given_back, run)
            return
        error = future.exception()
        if error is None:
            ending = endings.ending_of(run.entry.id, future.result())
        else:
            log.error("the executor failed on task %s", run.entry.id, exc_info=error)
            ending = endings.failed(run.entry.id, f"{type(error).__name__} in the executor")
        self._call(self._end, run, ending)

    def _call(self, function: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            # The loop has ended; on disk the task is still running, so the next start judges it again.
            log.info("a verdict came after the service had ended")

    def _end(self, run: Run, ending: Ending) -> None:
        if not run.is_cancelled and self.runs.get(run.entry.id) is run:
            if self._is_ended and ending.columns["status"] == Status.INFRASTRUCTURE_ERROR:
                # Most likely our own doing, as the executor was told to end: no verdict for anybody.
                self._given_back(run)
                return
            self._on_end(ending)
        self._release(run)

    def _break(self, run: Run, reason: str) -> None:
        self.is_broken = reason
        self._given_back(run)

    def _given_back(self, run: Run) -> None:
        """The executor did not judge it: it waits for another start, unless its owner has cancelled it."""
        if not run.is_cancelled:
            entry = run.entry

            def settle(was_running: bool | StoreError) -> None:
                if was_running is True:
                    self._on_return(entry.id)
                    self.queue.push(entry)
                    self.pump()

            self._journal.put(Write(lambda connection: store.requeue(connection, entry.id), settle, must_succeed=True))
        self._release(run)

    def cancel(self, task_id: str) -> None:
        """A task was cancelled in the store: let go of it."""
        if self.queue.remove(task_id):
            return
        run = self.runs.get(task_id)
        if run is not None:
            run.is_cancelled = True
            if run.future is not None:
                run.future.cancel()

    def _release(self, run: Run) -> None:
        self.moved_at = time.monotonic()
        self._forget(run)
        self.pump()

    def _forget(self, run: Run) -> None:
        if self.runs.get(run.entry.id) is run:
            del self.runs[run.entry.id]
            for counter, name in (
                (self._running_clients, run.entry.client),
                (self._running_devices, run.entry.device),
            ):
                counter[name] -= 1
                if counter[name] <= 0:
                    del counter[name]

    async def stop(self) -> None:
        """Close the executor, which ends what runs; what it has not finished is queued again in the store."""
        self.is_stopped = True
        self._is_ended = True
        await asyncio.to_thread(self._hands.shutdown, wait=True)
        await asyncio.to_thread(self._executor.close, drain=False, patience=0.0)
        self._reader.close()
        await asyncio.sleep(0)
        for run in list(self.runs.values()):
            self._given_back(run)
