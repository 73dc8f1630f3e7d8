"""How busy the judges are: looked at from the side, so that a step's record can say who waited for whom.

An executor tells what each device does at this moment (`Executor.devices`). A thread looks again and again, ten times a
second at devices of this machine, and at those of a service as often as it looks itself (once a second): a look that
shows what the last one showed would count it twice. What is told is the mean over all looks of the share of slots with
a verdict under way; of too few looks, in a short step, nothing. Other users' verdicts on a service count as well.
"""

from __future__ import annotations

import threading
from types import TracebackType

from kerneldojo.pool import Executor

LOOK_SECONDS = 0.1
"""Between two looks at devices of this machine."""
MIN_LOOKS = 4
"""Fewer say nothing."""


class JudgeMeter:
    """Measures the share of an executor's slots that are at work; a context."""

    def __init__(self, executor: Executor) -> None:
        """Nothing is measured before the context is entered."""
        self._executor = executor
        # Executors that remember what they saw say for how long.
        self._pause = max(LOOK_SECONDS, getattr(executor, "refresh_seconds", 0.0))
        self._shares: list[float] = []
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
        """Mean share of slots that were busy since this was last asked; None if too little was seen."""
        with self._lock:
            shares, self._shares = self._shares, []
        return sum(shares) / len(shares) if len(shares) >= MIN_LOOKS else None

    def _watch(self) -> None:
        while not self._ended.wait(self._pause):
            devices, num_slots = self._executor.devices(), self._executor.num_slots
            if devices and num_slots:
                running = sum(len(device.running) for device in devices)
                with self._lock:
                    self._shares.append(min(1.0, running / num_slots))
