"""A verdict under way as the gate sees it: whether it is held, its processes, and the time that is not its own.

A guest is in one of three states. *Busy*: its thread may use the device itself (it compares outputs, say). *In a
command*: its thread only waits for one of its processes. *Held*: it waits at the gate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol

from kerneldojo.judging.seats import Reserved
from kerneldojo.judging.stops import Freezable, stopped

if TYPE_CHECKING:
    from kerneldojo.judging.gate import Gate


class Budget(Protocol):
    """What spends time on commands; `judging.hosted.Hosted` is one."""

    def give_back(self, seconds: float) -> None:
        """So much of the time that has just passed was not its own, if any was."""
        ...


class Guest:
    """One verdict under way, at the gate. Belongs to one thread."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.room, self.is_alone = 0, False
        """Where the gate has let it in."""
        self.had_company = False
        """Whether another verdict was under way at any time: then memory, for one, was not all its own."""
        self.has_strangers = False
        """Whether the device was in use before anything of this verdict was there, and nobody else's of ours was."""
        self.is_measuring = False
        """Whether it has, or waits for, a device to itself: then its processes have done all that they were asked."""
        self.sessions: list[Freezable] = []
        """Its processes; frozen while another has a window."""
        self.budgets: list[Budget] = []
        """What gets back the time that it was held."""
        self.reserved: Reserved | None = None
        """Its cores, while it has a window and cores are reserved."""
        self._slowness = 1.0
        self.is_busy = True
        self.seconds_held = 0.0
        """How long it waited for others' windows and for its own."""
        self.seconds_stopping = 0.0
        """Of these, how long it took, once it was its turn, until all others stood still and it had its cores."""
        self.seconds_alone = 0.0
        """How long it had the device to itself."""

    @contextmanager
    def window(self) -> Generator[None]:
        """Have the device alone. Not to be nested."""
        if self._gate.capacity == 1:
            with self._gate.reserve_cores(self):
                yield
            return
        started = time.monotonic()
        self._gate.open_for(self)
        opened = time.monotonic()
        self._give_back(opened - started)
        is_handed_over = False
        try:
            yield
            self.leave_cores()
            ended = time.monotonic()
            self.seconds_alone += ended - opened
            is_handed_over = self._gate.hand_over(self)
            self._give_back(time.monotonic() - ended)
        finally:
            self.leave_cores()
            if not is_handed_over:
                self._gate.close_window()

    @contextmanager
    def standstill(self) -> Generator[None]:
        """A window in which its own processes stand still, too; it may have one already. None of that is its time."""
        with ExitStack() as stack:
            if self._gate.capacity > 1 and not self._gate.is_owned_by(self):
                stack.enter_context(self.window())
            started = time.monotonic()
            with stopped(self.sessions):
                yield
            self._give_back(time.monotonic() - started)

    @contextmanager
    def measuring(self) -> Generator[None]:
        """From when it wants to measure until it has, in one window or several."""
        self.is_measuring = True
        try:
            yield
        finally:
            self.is_measuring = False

    def neighbours_at_work(self) -> frozenset[Guest]:
        """Other verdicts under way that may have the device in use by what their processes were asked to do."""
        return self._gate.neighbours_at_work(self)

    @property
    def slowness(self) -> float:
        """Of its cores in its window, or in its last one; see `seats.Reserved`."""
        return self._slowness if self.reserved is None else self.reserved.slowness

    def leave_cores(self) -> None:
        """The window is over: only how slow they were is remembered."""
        if self.reserved is not None:
            self._slowness = self.reserved.slowness
            self.reserved = None

    def renew_cores(self) -> None:
        """In a window, while nothing is timed: leave cores that have become slow."""
        if self.reserved is not None:
            self.reserved.renew()

    def wait(self, is_answered: Callable[[float], bool], timeout: float) -> float:
        """Wait for one of its processes, held or not; the time it was held is not counted.

        Args:
            is_answered: waits up to that many seconds and says whether an answer is there.
            timeout: seconds.

        Returns:
            Seconds that are left; 0 if there is no answer in time.
        """
        self._gate.set_busy(self, False)
        remaining, held = timeout, 0.0
        answered = False
        try:
            while not answered and remaining > 0:
                before, was_held = time.monotonic(), self._gate.is_held(self)
                answered = is_answered(min(0.05, remaining))
                spent = time.monotonic() - before
                if was_held and self._gate.is_held(self):
                    held += spent
                else:
                    remaining -= spent
        finally:
            held += self._gate.set_busy(self, True)
            self._give_back(held)
        return max(remaining, 0.0)

    def wait_for_others(self, is_reached: Callable[[float], bool], timeout: float) -> float:
        """The same for something that other verdicts have: none of that time counts."""
        remaining = self.wait(is_reached, timeout)
        self._give_back(timeout - remaining)
        return remaining

    @contextmanager
    def beside_windows(self, sessions: Collection[Freezable]) -> Generator[None]:
        """Wait for something about `sessions` that need not stop for another's window, such as their end.

        Meanwhile nobody waits for this guest, and they are not frozen; afterwards it waits while it is held.
        """
        mine = [session for session in self.sessions if session in sessions]
        self.sessions = [session for session in self.sessions if session not in sessions]
        self._gate.set_busy(self, False)
        try:
            yield
        finally:
            self._give_back(self._gate.set_busy(self, True))
            self.sessions += [session for session in mine if session.ended is None]

    def return_from_command(self) -> None:
        """Be busy again, whatever ended the command."""
        self._give_back(self._gate.set_busy(self, True))

    def _give_back(self, seconds: float) -> None:
        self.seconds_held += seconds
        for budget in self.budgets:
            budget.give_back(seconds)
