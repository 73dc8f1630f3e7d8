"""How busy the judges are: looked at from the side, so that a step's record can say who waited for whom.

An executor tells what each device does at this moment (`Executor.devices`). A thread looks ten times a second and sums
up: slots with a verdict under way, times seconds, over all slots times seconds. A service is asked for its overview
only every few seconds, so that a short step's share is coarse there, and other users' verdicts count as well.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType

from kerneldojo.pool import Executor

LOOK_SECONDS = 0.1
"""Between two looks."""


class JudgeMeter:
    """Measures the share of an executor's slots that are at work; a context."""

    def __init__(self, executor: Executor) -> None:
        """Nothing is measured before the context is entered."""
        self._executor = executor
        self._busy = self._held = 0.0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="judge meter", daemon=True)

    def __enter__(self) -> JudgeMeter:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def take(self) -> float | None:
        """Share of slot time that was busy since this was last asked; None if there was nothing to see."""
        with self._lock:
            share = self._busy / self._held if self._held else None
            self._busy = self._held = 0.0
        return share

    def _watch(self) -> None:
        last = time.monotonic()
        while not self._ended.wait(LOOK_SECONDS):
            devices, num_slots = self._executor.devices(), self._executor.num_slots
            now = time.monotonic()
            if devices and num_slots:
                running = sum(len(device.running) for device in devices)
                with self._lock:
                    self._busy += (now - last) * min(1.0, running / num_slots)
                    self._held += now - last
            last = now
