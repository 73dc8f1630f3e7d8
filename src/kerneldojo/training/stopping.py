"""Ctrl-C: the first one asks the run to save and stop, the second one stops it where it stands."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any


class Stopped(Exception):
    """Somebody asked the run to stop; raised where nothing has been changed yet that a checkpoint would miss."""


class StopSwitch:
    """Turns SIGINT and SIGTERM into a wish that the loop looks at; a context for the main thread."""

    def __init__(self) -> None:
        """Not asked yet."""
        self.wanted = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSwitch:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.wanted:
            raise KeyboardInterrupt
        self.wanted = True

    def check(self) -> None:
        """Raise `Stopped` if somebody asked."""
        if self.wanted:
            raise Stopped
