"""Processes of other verdicts that stand still for a window, and what is cleared for it (`judging.gate`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kerneldojo.contestant.wire import WireError
from kerneldojo.judging.ends import Infrastructure
from kerneldojo.judging.seats import Cleared


class Freezable(Protocol):
    """A process that can be stopped; `judging.processes.Session` is one."""

    ended: Any

    def wait_started(self, timeout: float = 30.0) -> None:
        """Wait until it is there to be stopped, or has ended."""
        ...

    def pids(self) -> list[int]:
        """Ids of its processes."""
        ...

    def order_freeze(self) -> None:
        """Have it stopped, without waiting for that."""
        ...

    def wait_frozen(self, timeout: float = 5.0) -> None:
        """Wait until it is stopped as ordered."""
        ...

    def thaw(self) -> None:
        """Let it go on, without waiting for that."""
        ...


@dataclass
class Stop:
    """One stop of everybody, for one window or several in a row."""

    frozen: list[Freezable] = field(default_factory=list[Freezable])
    """Processes that stand still for it: all but the present owner's."""
    cleared: Cleared | None = None
    """The cores that were cleared for it."""
    num_windows: int = 1
    is_complete: bool = False
    """Whether all stand still."""


def freeze(
    sessions: Sequence[Freezable], frozen: list[Freezable], meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Stop all that have not ended, and add them to `frozen`, those too that are slow to stop.

    Args:
        sessions, frozen: see above.
        meanwhile: called when all have been told, before any is waited for: who is in the driver takes milliseconds.
    """
    living = [session for session in sessions if session.ended is None]
    frozen += living
    for session in living:
        with contextlib.suppress(WireError, Infrastructure):  # It ended just now: its own verdict will see it.
            session.order_freeze()
    meanwhile()
    for session in living:
        with contextlib.suppress(WireError, Infrastructure):
            session.wait_frozen()


def thaw(sessions: Sequence[Freezable]) -> None:
    """Let them go on, without waiting for that."""
    for session in sessions:
        with contextlib.suppress(WireError, Infrastructure):
            session.thaw()


@contextlib.contextmanager
def stopped(sessions: Sequence[Freezable]) -> Generator[None]:
    """A context in which these do not run; afterwards they go on where they were."""
    frozen: list[Freezable] = []
    try:
        freeze(sessions, frozen)
        yield
    finally:
        thaw(frozen)
