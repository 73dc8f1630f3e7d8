"""Who may use a device when: several verdicts at once, and windows in which one has it to itself.

Most of a verdict (starting processes, audit, build, correctness) does no harm to its like. What takes time does: so it
happens in a *window*. When one opens, the judge's threads of all other verdicts stop at their next command, their
processes are frozen wherever they are, a few cores are kept for what is timed (`judging.seats`), and a canary (a short
fixed kernel, timed against its idle baseline) shows before and after that nothing else used the device. Time that a
verdict spends frozen or waiting at the gate is not counted against its candidate.

Stopping everybody and clearing cores costs tens of milliseconds. So where another verdict waits for a window when one
ends, the device is handed to it as it is: its processes go on, the last owner's are stopped, and the others notice
nothing. Nobody waits longer for that, since the next window would have been opened at once anyway.

A window opens once no other guest (`judging.guest`) is busy; then nobody but its owner touches the leashes of the
others' sessions, so it may freeze them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kerneldojo.judging.cores import Cores
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.seats import Cleared, reserved_for
from kerneldojo.judging.stops import Stop, freeze, thaw

MOST_OVERTAKEN = 16
"""How often whoever is first at the entrance, but needs another room than those inside, is passed by one who does not:
until all have left nobody comes in."""


@dataclass
class Ticket:
    """One verdict at the entrance."""

    room: int
    num_overtaken: int = 0


class Gate:
    """One device's gate.

    Args:
        capacity: verdicts at once. With 1 it is a lock, and windows cost nothing.
        cores: some reserved for what has a window; None for none.
        most_in_a_row: windows for which everybody is stopped but once, where so many are waited for.
        larger: verdicts at once in other rooms, whose memory is divided in another way: only those of one room are
            inside at a time.
        num_alone: rooms after these, for one verdict alone.
    """

    def __init__(
        self,
        capacity: int = 1,
        cores: Cores | None = None,
        most_in_a_row: int = 1,
        larger: Sequence[int] = (),
        num_alone: int = 1,
    ) -> None:
        if capacity < 1:
            raise ValueError(f"a gate lets at least one verdict in, not {capacity}")
        if most_in_a_row < 1:
            raise ValueError(f"at least one window in a row, not {most_in_a_row}")
        self.capacity, self.most_in_a_row = capacity, most_in_a_row
        self._capacities = (capacity, *larger, *(1 for _ in range(num_alone)))
        self.first_alone = 1 + len(larger)
        """From this room on a verdict has nobody beside it."""
        self._most_overtaken = MOST_OVERTAKEN if larger else 0
        self._cores = cores
        self._stop = Stop()
        self._changed = threading.Condition()
        self._guests: list[Guest] = []
        self._outside: list[Guest] = []
        """Who is not inside yet, and has processes that stand still in windows, too."""
        self._entrance = deque[Ticket]()
        self._windows = deque[Guest]()
        self._owner: Guest | None = None
        self.on_open: Callable[[], None] = lambda: None
        """Called when a window has opened: what need not stop for one, and is else in the way, is best done then."""
        self.on_close: Callable[[], None] = lambda: None
        """Called when it closes."""

    @contextmanager
    def approach(self) -> Generator[Guest]:
        """A guest that is not inside yet: nothing of it may use the device, and all of it stands still in windows."""
        guest = Guest(self)
        with self._changed:
            self._outside.append(guest)
        try:
            yield guest
        finally:
            with self._changed:
                if guest in self._outside:
                    self._outside.remove(guest)
                self._changed.notify_all()

    @contextmanager
    def admit(self, room: int = 0, guest: Guest | None = None) -> Generator[Guest]:
        """Let one verdict in once there is room, in order of arrival, but for `MOST_OVERTAKEN`.

        Args:
            room: which one; from `first_alone` on nobody else is let in while it is inside.
            guest: who was outside before, or in another room, if anybody was.
        """
        was_there, ticket = guest is not None, Ticket(room)
        guest = guest or Guest(self)
        guest.room, guest.is_alone, guest.had_company = room, room >= self.first_alone, False
        with self._changed:
            if was_there and guest not in self._outside:
                self._outside.append(guest)
            self._entrance.append(ticket)
            guest.is_busy = False  # Nobody's window waits for who waits here.
            self._changed.notify_all()
            try:
                self._changed.wait_for(lambda: self._is_next(ticket) and self._has_room(room))
                if self._entrance[0] is not ticket:
                    self._entrance[0].num_overtaken += 1
                self._guests.append(guest)
                if guest in self._outside:
                    self._outside.remove(guest)
                if len(self._guests) > 1:
                    for inside in self._guests:
                        inside.had_company = True
            finally:
                guest.is_busy = True
                self._entrance.remove(ticket)
                self._changed.notify_all()
        try:
            yield guest
        finally:
            guest.return_from_command()
            with self._changed:
                self._guests.remove(guest)
                self._changed.notify_all()

    def _is_next(self, ticket: Ticket) -> bool:
        """Whether it is the first, or may pass that: as the first of those who need the room of those inside."""
        first = self._entrance[0]
        if ticket is first or first.num_overtaken >= self._most_overtaken or not self._guests:
            return ticket is first
        inside = self._guests[0].room
        return first.room != inside and ticket is next((one for one in self._entrance if one.room == inside), None)

    def _has_room(self, room: int) -> bool:
        if self._owner is not None or any(guest.room != room for guest in self._guests):
            return False
        return len(self._guests) < self._capacities[room]

    def open_for(self, guest: Guest) -> None:
        """Open a window: wait for its turn, hold and freeze the others, unless somebody hands the device over.

        Either way the guest then has cores of its own, which are chosen while the others come to a stop.
        """
        with self._changed:
            self._windows.append(guest)
            guest.is_busy = False
            self._changed.notify_all()
            try:
                self._changed.wait_for(lambda: self._owner is guest or self._is_first(guest))
            except BaseException:
                if self._owner is guest:  # It was interrupted just as it got it.
                    self.close_window()
                raise
            finally:
                if guest in self._windows:
                    self._windows.remove(guest)
                guest.is_busy = True
                self._changed.notify_all()
            is_handed_over = self._owner is guest
            if not is_handed_over:
                self._owner = guest
                self._stop = Stop(cleared=Cleared(self._cores) if self._cores is not None else None)
            since, stop = time.monotonic(), self._stop
        try:
            if is_handed_over:  # All others stand still already.
                self._seat(guest)
                return
            with self._changed:
                # Asked anew each time: a guest may leave while it is waited for, and nobody comes in meanwhile.
                self._changed.wait_for(lambda: not any(other.is_busy for other in self._others(guest)))
                others = self._others(guest)
            theirs = [session for other in others for session in other.sessions]
            freeze(theirs, stop.frozen, meanwhile=lambda: self._seat(guest))
            guest.seconds_stopping += time.monotonic() - since
            stop.is_complete = True
            self.on_open()
        except BaseException:
            guest.leave_cores()
            self.close_window()
            raise

    def _others(self, guest: Guest) -> list[Guest]:
        return [other for other in (*self._guests, *self._outside) if other is not guest]

    def _is_first(self, guest: Guest) -> bool:
        return self._owner is None and bool(self._windows) and self._windows[0] is guest

    def close_window(self) -> None:
        """Let everybody go on."""
        stop, self._stop = self._stop, Stop()
        try:
            try:
                if stop.cleared is not None:
                    stop.cleared.end()
                self.on_close()
            finally:
                thaw(stop.frozen)
        finally:
            with self._changed:
                self._owner = None
                self._changed.notify_all()

    def hand_over(self, guest: Guest) -> bool:
        """Leave a window to whoever waits for the next one, if anybody does; and wait until the others may go on, too.

        Returns:
            Whether that was done; else the window is still the guest's.
        """
        stop = self._stop
        with self._changed:
            if not self._windows or stop.num_windows >= self.most_in_a_row:
                return False
            following = self._windows[0]
        # It waits, and the owner alone touches leashes: so who is next is settled, and stays so.
        freeze(guest.sessions, stop.frozen)
        if stop.cleared is not None:
            stop.cleared.leave([session.pids() for session in guest.sessions])
        theirs = [session for session in stop.frozen if session in following.sessions]
        stop.frozen = [session for session in stop.frozen if session not in theirs]
        thaw(theirs)
        with self._changed:
            if following not in self._windows:  # It was interrupted meanwhile.
                return False
            stop.num_windows += 1
            self._windows.remove(following)
            self._owner = following
            guest.is_busy = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self.is_held(guest))
            guest.is_busy = True
            self._changed.notify_all()
        return True

    @contextmanager
    def reserve_cores(self, guest: Guest) -> Generator[None]:
        """Cores of their own for a guest's thread and processes, in its window, with one verdict at a time."""
        if self._cores is None:
            yield
            return
        with reserved_for(self._cores, [session.pids() for session in guest.sessions]) as reserved:
            guest.reserved = reserved
            try:
                yield
            finally:
                guest.leave_cores()

    def _seat(self, guest: Guest) -> None:
        """The same, beside others, until the window is closed or handed over."""
        if self._stop.cleared is not None:
            guest.reserved = self._stop.cleared.seat([session.pids() for session in guest.sessions])

    @property
    def is_open(self) -> bool:
        """Whether somebody has the device alone, and all others stand still."""
        return self._stop.is_complete

    def is_owned_by(self, guest: Guest) -> bool:
        """Whether this verdict's window is open."""
        return self._owner is guest

    def is_held(self, guest: Guest) -> bool:
        """Whether another verdict's window is open."""
        return self._owner is not None and self._owner is not guest

    def neighbours_at_work(self, guest: Guest) -> frozenset[Guest]:
        """Who else is inside and is not about to measure."""
        with self._changed:
            return frozenset(other for other in self._guests if other is not guest and not other.is_measuring)

    def set_busy(self, guest: Guest, is_busy: bool) -> float:
        """A guest enters a command, or comes back from one: then it waits while it is held. Returns seconds waited."""
        started = time.monotonic()
        with self._changed:
            if is_busy and not guest.is_busy:
                self._changed.wait_for(lambda: not self.is_held(guest))
            guest.is_busy = is_busy
            self._changed.notify_all()
        return time.monotonic() - started
