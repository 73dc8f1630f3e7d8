"""Group commit: many writes, one transaction, one fsync.

A disk acknowledges a few hundred flushes a second; a service accepts more tasks than that. So one thread owns the only
writing connection, takes whatever has piled up, applies it in one transaction and commits; while the disk flushes,
the next batch piles up. Nobody is told of a write before the commit that holds it has reached the disk.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

log = logging.getLogger(__name__)

MAX_GROUP = 512
"""Writes of one transaction."""

RETRY_SECONDS = 0.5
"""How long to wait after a write that the disk refused."""


class StoreError(Exception):
    """The store cannot be written now; nothing of the refused write was kept."""


@dataclass(slots=True)
class Write:
    """One change, and who waits for it."""

    apply: Callable[[sqlite3.Connection], Any]
    """Runs inside the transaction; what it returns goes to `settle`."""
    settle: Callable[[Any], None]
    """Called after the commit with the result, or with a `StoreError` if it could not be written."""
    must_succeed: bool
    """Tried again until the disk takes it, for what cannot be asked for again: verdicts."""


class Journal:
    """The writing thread of a store."""

    def __init__(self, connection: sqlite3.Connection, deliver: Callable[[Callable[[], None]], None]) -> None:
        """`deliver` carries a call to the thread where `settle` is to run; once for each group."""
        self._connection = connection
        self._deliver = deliver
        self._pending: deque[Write] = deque()
        self._num_unsettled = 0
        self._wake = threading.Condition()
        self._closing = False
        self.refused_at = float("-inf")
        """When the disk last refused a transaction, by the monotonic clock."""
        self._thread = threading.Thread(target=self._run, name="dojo-journal", daemon=True)
        self._thread.start()

    def put(self, write: Write) -> None:
        """Queue a write; thread-safe."""
        with self._wake:
            self._pending.append(write)
            self._num_unsettled += 1
            self._wake.notify()

    def __len__(self) -> int:
        """Writes that nobody was told of yet: those that are being written too."""
        return self._num_unsettled

    def close(self, timeout: float = 30.0) -> bool:
        """Write what is pending, then end; whether everything reached the disk."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(timeout)
        return not self._thread.is_alive() and not self._pending

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._pending and not self._closing:
                    self._wake.wait()
                group = [self._pending.popleft() for _ in range(min(len(self._pending), MAX_GROUP))]
            if not group:
                return
            self._commit(group)

    def _commit(self, group: list[Write]) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            results = [write.apply(self._connection) for write in group]
            self._connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            self._roll_back()
            self._refused(group, error)
        except Exception as error:
            self._roll_back()
            self._part(group, error)
        else:
            self._settle(group, results)

    def _roll_back(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            log.exception("a transaction could not be rolled back")  # The next one is refused, and it is tried again.

    def _part(self, group: list[Write], error: Exception) -> None:
        """One of these can never be written: the others are not to go with it.

        It holds a number that SQLite has not, or belongs on a damaged page. What the disk refuses now and may take
        later is an `OperationalError` and never comes here.
        """
        if len(group) > 1:
            for write in group:
                self._commit([write])
            return
        log.error("a write that cannot be made is given up", exc_info=error)
        self._settle(group, [StoreError(f"this cannot be stored: {type(error).__name__}")])

    def _refused(self, group: list[Write], error: sqlite3.Error) -> None:
        log.error("the store refused %d writes: %s", len(group), error)
        self.refused_at = time.monotonic()
        failure = StoreError(f"the store cannot be written: {error}")
        with self._wake:
            # Those behind it too: what is tried again goes first, and may be so much that nothing else is tried.
            tried = [*group, *self._pending]
            given_up = [write for write in tried if not write.must_succeed]
            self._pending = deque(write for write in tried if write.must_succeed)
        self._settle(given_up, [failure] * len(given_up))
        with self._wake:
            if self._closing:
                # The tasks of these verdicts are still marked as running on disk: they are judged again.
                log.error(
                    "%d verdicts could not be written; they are reached again after the next start", len(self._pending)
                )
                self._num_unsettled -= len(self._pending)
                self._pending.clear()
            else:
                self._wake.wait(RETRY_SECONDS)

    def _settle(self, group: list[Write], results: list[Any]) -> None:
        def settle_all() -> None:
            for write, result in zip(group, results, strict=True):
                try:
                    write.settle(result)
                except Exception:
                    # The others of the group must hear of theirs all the same.
                    log.exception("a write was done, but telling of it failed")
            with self._wake:
                self._num_unsettled -= len(group)

        if group:
            self._deliver(settle_all)
