"""A service as an `Executor`: whatever takes a pool of devices takes a service elsewhere as well."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from kerneldojo.client.asynchronous import AsyncClient
from kerneldojo.client.attempts import Retries
from kerneldojo.client.awaited import Awaited
from kerneldojo.client.errors import ClientError, TaskCancelled
from kerneldojo.client.naming import new_id
from kerneldojo.client.steps import verdict
from kerneldojo.pool.executor import DeviceState
from kerneldojo.schema import Evaluation, Job, Status
from kerneldojo.service.records import Overview, TaskRecord, TaskState

OVERVIEW_SECONDS = 5.0
"""How old what is known of the service's slots may be."""

LOOK_SECONDS = 2.0
"""How long a service may take to tell of its slots and devices before what was known of them stands."""

CANCEL_SECONDS = 5.0
"""How long to try to cancel a task that nobody waits for any more."""

MOST_WITHDRAWALS = 32
"""Asked for at once: a service that is given hundreds is not gone because the last of them takes longer than that."""


class ClientExecutor:
    """Judges by a service; thread-safe, a context manager. Its requests run on an event loop in a thread of its own."""

    refresh_seconds = 1.0
    """How old what `devices` tells may be: a service looks at its devices no more often."""

    keeps_tasks = True

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        token: str | None = None,
        name: str | None = None,
        retries: Retries | None = None,
    ) -> None:
        """Connect.

        Raises:
            ClientError: the service cannot be reached, or refuses the token.
            ValueError: the address, the token or the name is none.
        """
        self._client = AsyncClient(url, token=token, name=name, retries=retries)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="dojo-client", daemon=True)
        self._thread.start()
        self._lock = threading.Lock()
        self._open: set[Future[Any]] = set()
        """What is to end before the event loop does: verdicts, and requests to withdraw."""
        self._is_closed = False
        self._withdrawing = asyncio.Semaphore(MOST_WITHDRAWALS)
        self._gone_at = float("-inf")
        """When it last did not answer in time to who cancelled."""
        self._asking = threading.Lock()
        self._overview_at = float("-inf")
        try:
            self._overview = self._ask()
        except BaseException:
            self._end()
            raise

    @property
    def num_slots(self) -> int:
        """Slots of the service, as last seen; at least 1."""
        return max(1, self._recent(OVERVIEW_SECONDS).queue.slots)

    def devices(self) -> Sequence[DeviceState]:
        """The service's devices as they were at most `refresh_seconds` ago."""
        return self._recent(self.refresh_seconds).devices

    def submit(self, job: Job, *, id: str | None = None) -> Awaited:
        """See `Executor.submit`, and for the `id` `Lasting.submit`. A service that stays away is a fault of ours.

        Raises:
            RuntimeError: closed.
        """
        future = Awaited(id or new_id(), self._withdraw)
        with self._lock:
            if self._is_closed:
                raise RuntimeError("this executor is closed")
            self._open.add(future)
        asyncio.run_coroutine_threadsafe(self._judge(job, future), self._loop)
        return future

    async def _judge(self, job: Job, future: Awaited) -> None:
        # The future stays pending until its end, so that it can be cancelled as long as the service can.
        work = asyncio.ensure_future(self._verdict(job, future))
        future.add_done_callback(
            lambda done: self._loop.call_soon_threadsafe(work.cancel) if done.cancelled() else None
        )
        try:
            evaluation = await work
        except asyncio.CancelledError:
            if not future.is_settled:
                await self._cancel(future.task_id)
        except Exception as error:
            if future.is_withdrawn and isinstance(error, TaskCancelled):
                # Told by who waits for the verdict, before the request to withdraw has its answer.
                future.cancel()
                return
            reason = "our fault"
            if isinstance(error, ClientError):
                reason, future.waited_s = f"our fault: {type(error).__name__}: {error}", error.waited_s
            self._resolve(future, Evaluation(status=Status.INFRASTRUCTURE_ERROR, message=reason[:500]))
        else:
            self._resolve(future, evaluation)
        finally:
            self._forget(future)

    def _forget(self, future: Future[Any]) -> None:
        with self._lock:
            self._open.discard(future)

    def _withdraw(self, future: Awaited) -> None:
        with self._lock:
            if future.is_withdrawn or future not in self._open:
                return
            future.is_withdrawn = True
            asked = asyncio.run_coroutine_threadsafe(self._cancel_queued(future), self._loop)
            self._open.add(asked)
        asked.add_done_callback(self._forget)

    async def _cancel_queued(self, future: Awaited) -> None:
        record = None
        async with self._withdrawing:
            if time.monotonic() - self._gone_at > CANCEL_SECONDS:  # What one has waited for in vain others need not.
                record = await self._cancel(future.task_id, if_queued=True)
        if record is None or record.state is TaskState.CANCELLED:
            future.is_settled = record is not None
            future.cancel()

    async def _verdict(self, job: Job, future: Awaited) -> Evaluation:
        id, number = future.task_id, 0
        while (await self._client.submit(job, id=future.task_id)).state is TaskState.CANCELLED:
            # By whoever submitted it before; a task that is cancelled while it is waited for has no verdict.
            if future.is_withdrawn:
                break
            number += 1
            future.task_id = f"{id}.{number}"
        return verdict(await self._client.wait(future.task_id))

    async def _cancel(self, task_id: str, *, if_queued: bool = False) -> TaskRecord | None:
        try:
            return await asyncio.wait_for(self._client.cancel(task_id, if_queued=if_queued), CANCEL_SECONDS)
        except (ClientError, TimeoutError) as error:
            # It was not accepted yet, or the service is gone: its verdict will be for nobody.
            self._gone_at = time.monotonic() if isinstance(error, TimeoutError) else self._gone_at
            return None

    @staticmethod
    def _resolve(future: Future[Evaluation], evaluation: Evaluation) -> None:
        if future.set_running_or_notify_cancel():
            future.set_result(evaluation)

    def _recent(self, seconds: float) -> Overview:
        """What was known no longer ago than `seconds`, or is asked now: by one at a time, whom the others do not await.

        Whoever keeps a queue asks between two requests, and must not stand still for as long as work may be retried.
        """
        if time.monotonic() - self._overview_at > seconds and self._asking.acquire(blocking=False):
            try:
                if not self._is_closed:
                    self._overview = self._ask(LOOK_SECONDS)
            except (ClientError, TimeoutError):
                # What was known stands until the service answers again; work submitted meanwhile is retried.
                self._overview_at = time.monotonic()
            finally:
                self._asking.release()
        return self._overview

    def _ask(self, timeout: float | None = None) -> Overview:
        asked = asyncio.wait_for(self._client.overview(), timeout)
        found = asyncio.run_coroutine_threadsafe(asked, self._loop).result()
        self._overview_at = time.monotonic()
        return found

    def close(self, *, drain: bool = True, patience: float | None = None) -> None:
        """Take no more jobs; wait for those accepted if `drain`, for so many seconds if told, then cancel them."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        until = time.monotonic() + (patience if drain and patience is not None else float("inf") if drain else 0.0)
        while True:
            with self._lock:
                open_now = list(self._open)
            if not open_now:
                break
            if time.monotonic() >= until:
                for future in open_now:
                    future.cancel()
            time.sleep(0.02)
        self._end()

    def _end(self) -> None:
        self._is_closed = True
        with self._asking:  # Who waits for an answer of a loop that has ended waits for ever.
            pass
        asyncio.run_coroutine_threadsafe(self._client.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> ClientExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close(drain=False)
