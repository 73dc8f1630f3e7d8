"""Blanks: processes with an open device that are nobody's yet.

A context takes a fifth of a second, nearly all of it the driver's, which does one thing at a time. Made when a verdict
needs it, that is time in which nobody can be timed, and in which everybody else's calls wait in line behind hundreds of
its own. So contexts are made ahead, in processes in which nothing of anybody's has run: these need not stand still in
windows, and a verdict takes one as it is. They are made *in* windows, for nobody else asks the driver for anything
then: between windows it is they who stand still, unless none is ready. Each serves one candidate and is gone
afterwards.

Mapping a share of the device's memory takes the driver as long. So a blank has that, too, where memory for timing comes
late and what is mapped is the same for all.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from kerneldojo.contestant.wire import WireError
from kerneldojo.judging.ends import HostedEnd, Infrastructure
from kerneldojo.judging.processes import Session
from kerneldojo.judging.stock import close

OPEN_SECONDS = 60.0
"""For making one context, while others make theirs."""
AT_ONCE = 4
"""How many are made at once: most of `cuInit` goes on beside others', what follows one at a time."""
FEW = 1
"""With fewer than this that are ready, any moment is good for making some."""
STILL_SECONDS = 1.0
"""How long one that is being made stands still at most: where nobody is timed for so long, any moment is good, too."""
PAUSE_SECONDS = 1.0
"""After one that could not be made."""

log = logging.getLogger(__name__)


class Blanks:
    """The blanks of one device. Thread-safe.

    Args:
        begin: starts a process that was asked for so, and waits for nothing.
        most: how many are kept, those under way included.
        furnish: begins to give one that has opened its device the memory of a contestant, if there is any to be had
            now, and says whether there was; by default it gets none before it is taken.
        is_moment: whether this is a good moment to make some; `begin_moment` is to be called when it becomes one, and
            `end_moment` when it was.
    """

    def __init__(
        self,
        begin: Callable[[dict[str, Any]], Session],
        most: int,
        furnish: Callable[[Session], bool] = lambda _: False,
        is_moment: Callable[[], bool] = lambda: True,
    ) -> None:
        self._begin, self._furnish, self._is_moment = begin, furnish, is_moment
        self._most = most
        self._changed = threading.Condition()
        self._wanted: dict[str, Any] | None = None
        """What is made; None until somebody asks, and while the device is another's alone."""
        self._ready: list[Session] = []
        self._num_under_way = 0
        self._begun: list[Session] = []
        """Of these, the ones that have a process already."""
        self._opening: list[Session] = []
        """Of these, the ones that are at what a moment has to be good for."""
        self._fault: Infrastructure | None = None
        self._threads: list[threading.Thread] = []
        self._is_closed = False

    def take(self, request: dict[str, Any]) -> Session | None:
        """One that was made as `request` says, None if there is none yet; the next ones are made meanwhile.

        Raises:
            Infrastructure: the last one could not be made.
        """
        with self._changed:
            stale: list[Session] = []
            if request != self._wanted:
                stale, self._ready = self._ready, []
            self._wanted = request
            self._start()
            found = None
            while self._ready and found is None:
                first = self._ready.pop(0)
                found = first if first.is_idle() else None
                stale += [] if found else [first]
            fault, self._fault = (None, self._fault) if found else (self._fault, None)
            self._go_on()
        for session in stale:
            close(session)
        if fault is not None:
            raise fault
        if found is not None:
            found.rest(False)
        return found

    def wait(self, seconds: float) -> bool:
        """Wait so long; whether `take` has something to say now."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._ready) or self._fault is not None, seconds)

    def begin_moment(self) -> None:
        """It is a good moment now: who stands still goes on."""
        with self._changed:
            self._go_on()

    def end_moment(self) -> None:
        """It was: who is at it stands still, if enough are ready."""
        with self._changed:
            self._stop_unless_good()

    def _stop_unless_good(self) -> None:
        """Have those that run only because there was none to be had stand still; who calls has the lock."""
        if not self._is_good():
            for session in self._opening:
                session.stop_directly()

    def _is_good(self) -> bool:
        """Whether to make some now, or for nobody any more; who calls has the lock."""
        return len(self._ready) < FEW or self._is_closed or self._wanted is None or self._is_moment()

    def _go_on(self) -> None:
        """Let whoever stands still go on if the moment is good; who calls has the lock."""
        if self._is_good():
            for session in self._opening:
                session.go_on()
        self._changed.notify_all()

    def evict(self) -> None:
        """End all, those under way too, and make no more until somebody asks."""
        with self._changed:
            self._wanted = None
            self._go_on()
            for session in self._begun:
                session.order_end()
            self._changed.wait_for(lambda: not self._num_under_way)
            ready, self._ready = self._ready, []
        for session in ready:
            session.order_end()
        for session in ready:
            close(session)

    def __len__(self) -> int:
        """How many wait."""
        with self._changed:
            return len(self._ready)

    def close(self) -> None:
        """End all, for good."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self.evict()
        for thread in self._threads:
            thread.join()

    def _start(self) -> None:
        """Begin to make them; who calls has the lock."""
        while len(self._threads) < min(AT_ONCE, self._most) and not self._is_closed:
            thread = threading.Thread(target=self._work, name="blanks", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _is_wanting(self) -> bool:
        if self._is_closed or self._wanted is None:
            return self._is_closed
        return len(self._ready) + self._num_under_way < self._most

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._is_wanting)
                if self._is_closed:
                    return
                assert self._wanted is not None
                request = self._wanted
                self._num_under_way += 1
            made: Session | None = None
            fault: Infrastructure | None = None
            try:
                made = self._opened(request)
            except Infrastructure as reason:
                fault = reason
            except Exception as bug:
                log.exception("a bug in making a process ahead")
                fault = Infrastructure(f"{type(bug).__name__} in making a process ahead")
            self._settle(made, fault, request)
            if fault is not None:
                time.sleep(PAUSE_SECONDS)

    def _settle(self, made: Session | None, fault: Infrastructure | None, request: dict[str, Any]) -> None:
        """Keep what was made, or end it if nobody wants it any more; whoever evicts waits until that is done."""
        with self._changed:
            is_wanted = self._is_wanted(request)
            if is_wanted and made is not None:
                self._ready.append(made)
                self._stop_unless_good()
            if is_wanted:
                self._fault = fault
        if made is not None and not is_wanted:
            close(made)
        with self._changed:
            self._num_under_way -= 1
            self._changed.notify_all()

    def _opened(self, request: dict[str, Any]) -> Session:
        """One with an open device; raises `Infrastructure`."""
        session = self._begin(request)
        try:
            session.wait_started()
            with self._listed(session, self._begun):
                if not self._is_wanted(request):
                    session.order_end()
                session.ask("load_driver", timeout=OPEN_SECONDS)
                with self._changed:
                    self._changed.wait_for(self._is_good, STILL_SECONDS)
                with self._listed(session, self._opening):
                    session.post("open", lean=True)
                    self._collect(session)
                    if self._furnish(session):
                        self._collect(session)
        except (HostedEnd, WireError) as end:
            close(session)
            raise Infrastructure(f"a process that had seen nothing could not open its device: {end}") from None
        except BaseException:
            close(session)
            raise
        session.rest(True)
        return session

    @contextmanager
    def _listed(self, session: Session, where: list[Session]) -> Generator[None]:
        """Have others find it there; afterwards it runs, and nobody but its owner touches it."""
        with self._changed:
            where.append(session)
        try:
            yield
        finally:
            with self._changed:
                where.remove(session)
                session.go_on()

    def _collect(self, session: Session) -> None:
        """Wait for an answer, whose process may stand still meanwhile; raises as `Session.collect`."""
        deadline = time.monotonic() + OPEN_SECONDS
        while not session.has_answered(STILL_SECONDS) and time.monotonic() < deadline:
            with self._changed:
                session.go_on()
        session.collect(STILL_SECONDS)

    def _is_wanted(self, request: dict[str, Any]) -> bool:
        return self._wanted == request and not self._is_closed
