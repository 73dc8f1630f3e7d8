"""Processes before they are needed and after: sessions kept ready, reference runners kept alive, ends waited for apart.

Locking a process in takes tens of milliseconds, most of them waiting for the kernel, and so does clearing one away.
Neither needs to be waited for. A session in stock has seen nothing yet: no source, no seed, no input; it is given to
one candidate and never comes back. A reference runner holds its problem's code and nothing of any candidate's, so it
serves the next candidate for the same problem too, with instances, seeds and inputs that are as fresh as ever; one
that did anything unusual is ended.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from kerneldojo.judging.ends import HostedEnd, Infrastructure
from kerneldojo.judging.processes import Session
from kerneldojo.judging.reference import Reference
from kerneldojo.judging.ruling import Ruling

MAX_KINDS = 2
"""Requests (limits, model of GPU) for which sessions are kept ready, of one fork server."""
MIN_REFERENCES = 16
"""Idle reference runners that are kept however little memory there is."""
MAX_REFERENCES = max(MIN_REFERENCES, 128 // len(os.sched_getaffinity(0)))
"""Idle reference runners: a rollout comes back to a problem when it has been through all others. A machine of more
cores has more judges, which share them out. Each has some 12 MB."""
SPARE_MEMORY = 0.25
"""Share of the machine's memory that must be free for more of them than that."""
MAX_USES = 200
"""Verdicts of one reference runner, so that nothing that a problem's code leaks adds up for ever."""
MAX_ENDING = 16
"""Sessions whose end is waited for apart; beyond that whoever closes one waits, so that they cannot pile up."""

S = TypeVar("S", bound=Session)

log = logging.getLogger(__name__)


class Endings:
    """Waits for sessions to end, in a thread of its own; the order to kill them is given at once.

    One whose candidate has started processes is waited for by whoever ends it: hundreds of them take a second to die,
    in which the next verdict would have less of the machine. A contestant alone stops when its end is ordered, or a
    moment later; to clear it away takes tens of milliseconds, in which the kernel mostly waits.
    """

    def __init__(self) -> None:
        self._queue: queue.Queue[Session | None] = queue.Queue(MAX_ENDING)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, session: Session) -> None:
        """Kill a session and everything in it; returns before it is gone, unless a candidate has forked in it."""
        if session.has_company():
            close(session)
            return
        session.order_end()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="endings", daemon=True)
                self._thread.start()
            self._queue.put(session)

    def _work(self) -> None:
        while (session := self._queue.get()) is not None:
            close(session)

    def close(self) -> None:
        """Wait until all are gone."""
        with self._lock:
            if self._thread is not None:
                self._queue.put(None)
                self._thread.join()
                self._thread = None


def close(session: Session) -> None:
    """Close a session whose verdict is not waiting for it; a fault of ours in that is told to the log.

    Whatever it is: the thread that closes is the only one, and without it every later verdict would wait for ever.
    """
    try:
        session.close()
    except Infrastructure as fault:
        log.warning("while closing a session: %s", fault)
    except Exception:
        log.exception("a bug in closing a session")


class Ready(Generic[S]):
    """Sessions of one fork server that are enclosed, or on the way to it, before anybody asks for them.

    Args:
        begin: starts one that was asked for so, and waits for nothing.
        depth: how many are kept for one kind of request.
        endings: who waits for those that are not wanted any more.
    """

    def __init__(self, begin: Callable[[dict[str, Any]], S], depth: int, endings: Endings) -> None:
        self._begin = begin
        self._depth = depth
        self._endings = endings
        self._lock = threading.Lock()
        self._stock: OrderedDict[str, list[S]] = OrderedDict()

    def take(self, request: dict[str, Any]) -> S:
        """A session that nobody has used; the next one is started meanwhile.

        Raises:
            Infrastructure: the fork server does not start.
        """
        key = json.dumps(request, sort_keys=True)
        with self._lock:
            kept = self._stock.setdefault(key, [])
            self._stock.move_to_end(key)
            found = next((session for session in kept if session.is_idle()), None)
            stale = kept[: kept.index(found)] if found else kept[:]
            del kept[: len(stale) + (found is not None)]
            while len(self._stock) > MAX_KINDS:
                stale += self._stock.popitem(last=False)[1]
        for session in stale:
            self._endings.add(session)
        if found is None:
            found = self._begin(request)
        else:
            found.rest(False)
        try:
            self._fill(key, kept, request)
        except BaseException:
            self._endings.add(found)
            raise
        return found

    def _fill(self, key: str, kept: list[S], request: dict[str, Any]) -> None:
        with self._lock:
            missing = self._depth - len(kept)
        for _ in range(missing):
            fresh = self._start(request)
            with self._lock:
                wanted = self._stock.get(key) is kept and len(kept) < self._depth
                if wanted:
                    kept.append(fresh)
            if not wanted:  # Others have filled it meanwhile, or have pushed this kind out.
                self._endings.add(fresh)

    def _start(self, request: dict[str, Any]) -> S:
        session = self._begin(request)
        session.rest(True)
        return session

    def close(self) -> None:
        """End all that are in stock."""
        with self._lock:
            sessions = [session for kept in self._stock.values() for session in kept]
            self._stock.clear()
        for session in sessions:
            self._endings.add(session)


def _has_spare_memory() -> bool:
    """Whether idle processes are in nobody's way."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    total, available = (int(lines[name].split()[0]) for name in ("MemTotal", "MemAvailable"))
    return available >= SPARE_MEMORY * total


class References:
    """Reference runners that wait for the next candidate for their problem.

    Each is lent to one verdict at a time. It is given back only if it did what it was asked and nothing else.
    """

    def __init__(self, endings: Endings) -> None:
        self._endings = endings
        self._lock = threading.Lock()
        self._idle: list[tuple[str, Reference]] = []

    def take(self, key: str) -> Reference | None:
        """One that has loaded the problem which `key` names, if there is one."""
        with self._lock:
            place = next((i for i, (name, _) in enumerate(self._idle) if name == key), None)
            found = None if place is None else self._idle.pop(place)[1]
        if found is not None and not found.hosted.session.is_idle():
            self._endings.add(found.hosted.session)
            return None
        if found is not None:
            found.hosted.session.rest(False)
        return found

    def give_back(self, key: str, reference: Reference) -> None:
        """Keep one for the next verdict, or end it."""
        fit = reference.num_uses < MAX_USES and not reference.is_doubtful and reference.hosted.session.is_idle()
        if fit:
            with contextlib.suppress(Ruling, HostedEnd, Infrastructure):
                reference.release()
                reference.hosted.arena.forget()
                reference.hosted.session.rest(True)
            fit = not reference.is_doubtful
        if not fit:
            self._endings.add(reference.hosted.session)
            return
        with self._lock:
            self._idle.append((key, reference))
            room = MAX_REFERENCES if len(self._idle) <= MIN_REFERENCES or _has_spare_memory() else MIN_REFERENCES
            surplus = [self._idle.pop(0)[1] for _ in range(len(self._idle) - room)]
        for old in surplus:
            self._endings.add(old.hosted.session)

    def close(self) -> None:
        """End all."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, reference in idle:
            self._endings.add(reference.hosted.session)
