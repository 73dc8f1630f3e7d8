"""What the service knows of its devices is at most a second old, whoever asks at the same time."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from service_app import drive, order, running, until
from service_executors import TextExecutor

from kerneldojo.pool.executor import DeviceState
from kerneldojo.service.lookout import Lookout


class Slow:
    """An executor that takes a moment to say what its devices do."""

    def __init__(self) -> None:
        self.num_asked = 0

    def devices(self) -> list[DeviceState]:
        self.num_asked += 1
        told = DeviceState(name="cpu", kind="cpu", num_done=self.num_asked)
        time.sleep(0.05)
        return [told]


def test_who_asks_while_devices_are_asked_hears_the_new_answer_too() -> None:
    """A page asks for several things at once, and showed a device that had long begun as one that was starting."""
    executor = Slow()

    async def told() -> list[int]:
        lookout = Lookout(cast(Any, SimpleNamespace(executor=executor)))
        await lookout.devices()
        lookout._asked_at -= 10.0
        answers = await asyncio.gather(*(lookout.devices() for _ in range(4)))
        return [device.num_done for answer in answers for device in answer]

    assert asyncio.run(told()) == [2, 2, 2, 2]
    assert executor.num_asked == 2


def test_devices_are_asked_once_a_second() -> None:
    executor = Slow()

    async def ask() -> None:
        lookout = Lookout(cast(Any, SimpleNamespace(executor=executor)))
        for _ in range(3):
            await lookout.devices()

    asyncio.run(ask())
    assert executor.num_asked == 1


def test_an_executor_that_does_not_say_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deadline is kept all the same, and once it speaks again it is heard."""
    monkeypatch.setattr("kerneldojo.service.lookout.LOOK_SECONDS", 0.3)
    speaks, asked = threading.Event(), threading.Event()
    speaks.set()

    class Silent(TextExecutor):
        def devices(self) -> list[DeviceState]:
            if not speaks.is_set():
                asked.set()
                speaks.wait(30)
            return super().devices()

    async def test() -> None:
        async with running(tmp_path, Silent(num_slots=1)) as r:
            await r.http.post("/v1/tasks", json=order("wait", id="first"))
            speaks.clear()
            assert await asyncio.to_thread(asked.wait, 10)
            try:
                await r.http.post("/v1/tasks", json=order("passed", id="late", deadline_seconds=0.5))
                record = (await r.http.get("/v1/tasks/late", params={"wait": 10})).json()
                assert (record["state"], record["expired"]) == ("done", True)
                assert (await r.http.get("/health")).status_code == 200
            finally:
                speaks.set()
                r.executor.is_healthy = False
            await until(lambda: not r.service.lookout.known_devices[0].is_healthy)
            r.executor.release.set()

    drive(test)


def test_what_waits_for_a_lost_machine_makes_no_service_ill(tmp_path: Path) -> None:
    """Nobody would send it work for the other machine then, and it would never be well again."""

    class Halved(TextExecutor):
        def devices(self) -> list[DeviceState]:
            lost, other = super().devices()
            gone = {"num_slots": 0, "is_healthy": False, "reason": "its machine is lost"}
            return [lost.model_copy(update=gone), other.model_copy(update={"num_slots": 1})]

    async def test() -> None:
        executor = Halved(["node-0/cpu", "node-1/cpu"], num_slots=1)
        async with running(tmp_path, executor, stalled_seconds=0.5) as r:
            await r.http.post("/v1/tasks", json=order("passed", id="lost", device="node-0/cpu"))
            await asyncio.sleep(1.0)
            told = await r.http.get("/health")
            assert (told.status_code, told.json()["queue_moving"], told.json()["queued"]) == (200, True, 1)
            await r.http.post("/v1/tasks", json=order("wait", id="first", device="node-1/cpu"))
            await r.http.post("/v1/tasks", json=order("wait", id="second", device="node-1/cpu"))
            await asyncio.sleep(1.0)
            assert not (await r.http.get("/health")).json()["queue_moving"]
            executor.release.set()

    drive(test)
