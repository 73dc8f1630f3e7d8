"""What the service knows of itself: for dashboards, for load balancers, for people."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from kerneldojo.pool.executor import DeviceState
from kerneldojo.service import store
from kerneldojo.service.journal import StoreError
from kerneldojo.service.records import Health, Overview, QueueState, TaskSummary
from kerneldojo.service.viewer import Viewer
from kerneldojo.service.views import summary_of

if TYPE_CHECKING:
    from kerneldojo.service.core import Service

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""How long an executor may take to tell of its devices before what was known of them stands."""

BEAT_SECONDS = 3.0
"""How long a write may take before `/health` calls the store broken."""

REFUSED_SECONDS = 10.0
"""For how long after a write was refused `/health` says so: its own is small, and fits where a task does not."""


class Lookout:
    """Looks at one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._devices: tuple[DeviceState, ...] = ()
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()
        self._look: asyncio.Task[Sequence[DeviceState]] | None = None
        """A question that the executor has not answered yet."""
        self._beat: tuple[float, bool] = (float("-inf"), False)
        self._damage = ""
        """What is wrong with the store's file; empty as far as is known."""

    @property
    def known_devices(self) -> tuple[DeviceState, ...]:
        """The devices as they were when last asked."""
        return self._devices

    async def devices(self) -> tuple[DeviceState, ...]:
        """What the executor's devices do, at most a second old, or what was known if it does not say.

        Deadlines are kept by whoever asks this too, and they must not wait for an executor that hangs.
        """
        async with self._asking:  # Who comes while they are asked waits for the answer: what was known may be old.
            now = time.monotonic()
            if now - self._asked_at > 1.0:
                if self._look is None:
                    self._look = asyncio.create_task(asyncio.to_thread(self._service.executor.devices))
                done, _ = await asyncio.wait({self._look}, timeout=LOOK_SECONDS)
                self._asked_at = now if done else time.monotonic()
                if done:
                    look, self._look = self._look, None
                    self._devices = tuple(look.result())
        return self._devices

    async def devices_for(self, viewer: Viewer) -> tuple[DeviceState, ...]:
        """The same; whoever does not see all learns that others' tasks run, not what they are."""
        devices = await self.devices()
        if viewer.sees_all:
            return devices
        return tuple(one.model_copy(update={"running": ("a task",) * len(one.running)}) for one in devices)

    def queue_state(self, viewer: Viewer | None = None) -> QueueState:
        """How much waits and runs; which client waits for how much, as far as `viewer` sees it."""
        queue = self._service.dispatcher.queue
        clients = queue.clients()
        return QueueState(
            queued=len(queue),
            queued_bytes=queue.num_bytes,
            running=len(self._service.dispatcher.runs),
            slots=self._service.executor.num_slots,
            clients={name: n for name, n in clients.items() if viewer is None or viewer.sees(name)},
        )

    async def overview(self, viewer: Viewer) -> Overview:
        """Everything that a dashboard shows first. Its totals are the service's, its tasks those that `viewer` sees."""
        now = time.time()
        return Overview(
            version=version("kerneldojo"),
            now=now,
            uptime_seconds=time.monotonic() - self._service.started_at,
            draining=self._service.is_draining,
            devices=await self.devices_for(viewer),
            queue=self.queue_state(viewer),
            per_minute=self._service.tally.per_minute(now),
            per_minute_history=self._service.tally.history(now),
            states={state: number for state, number in self._service.states.items() if number},
            statuses={status: number for status, number in self._service.statuses.items() if number},
            running=self._summaries(self._service.reader.running(64, viewer.only)),
            latest=self._summaries(self._service.reader.latest(32, viewer.only)),
        )

    def _summaries(self, rows: Iterable[Any]) -> tuple[TaskSummary, ...]:
        return tuple(summary_of(row) for row in rows)

    async def health(self) -> Health:
        """Whether devices are well, the store can be written, and the queue moves."""
        devices = await self.devices()
        healthy = [device for device in devices if device.is_healthy]
        writable = await self._is_writable()
        dispatcher = self._service.dispatcher
        idle = time.monotonic() - dispatcher.moved_at
        moving = not dispatcher.is_broken and not (idle > self._service.config.stalled_seconds and dispatcher.has_work)
        reasons = [f"{device.name}: {device.reason or 'not healthy'}" for device in devices if not device.is_healthy]
        if not devices:
            reasons.append("there is no device")
        if not self._service.storage.is_in_place():
            reasons.append("the store's file was removed or replaced")
        elif not writable:
            reasons.append("the store cannot be written")
        if self._damage:
            reasons.append(self._damage)
        if dispatcher.is_broken:
            reasons.append(dispatcher.is_broken)
        elif not moving:
            reasons.append(f"{len(dispatcher.queue)} tasks wait, and nothing started or ended for {idle:.0f} s")
        return Health(
            status="healthy" if healthy and writable and moving else "unhealthy",
            reasons=tuple(reasons),
            draining=self._service.is_draining,
            store_writable=writable,
            queue_moving=moving,
            num_devices=len(devices),
            num_healthy_devices=len(healthy),
            queued=len(dispatcher.queue),
            running=len(dispatcher.runs),
        )

    def note(self, error: sqlite3.Error) -> str:
        """Something could not be read from the store; says why in one line.

        What the disk may give later is an `OperationalError`; a plain `DatabaseError` is damage, and stays.
        """
        if type(error) is sqlite3.DatabaseError:
            reason = self._damage = f"the store is damaged: {error}"
        else:
            reason = f"the store cannot be read now: {error}"
        log.error("%s", reason)
        return reason

    async def _is_writable(self) -> bool:
        now = time.monotonic()
        if now - self._service.journal.refused_at < REFUSED_SECONDS or not self._service.storage.is_in_place():
            return False
        asked, answer = self._beat
        if now - asked < 1.0:
            return answer
        try:
            await asyncio.wait_for(self._service.write(store.beat, lambda _: None), BEAT_SECONDS)
            answer = True
        except (StoreError, TimeoutError):
            answer = False
        self._beat = (time.monotonic(), answer)
        return answer
