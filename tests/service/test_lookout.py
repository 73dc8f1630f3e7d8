"""What the service knows of its devices is at most a second old, whoever asks at the same time."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

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
