"""Deleting from a store that no service holds: as a service does it, and giving the space back to the disk."""

from __future__ import annotations

import time
from pathlib import Path

from kerneldojo.service import store
from kerneldojo.service.archive import Archive
from kerneldojo.service.store import Store

GROUP = 500
"""Tasks that are ended or deleted in one transaction."""


def surplus(num_bytes: int, keep_bytes: int, num_tasks: int) -> int:
    """How many tasks to delete next from a store that is too large: about as many as are too many, and no whole group
    where a few of them are the difference."""
    return max(1, min(GROUP, round(num_tasks * (1 - keep_bytes / num_bytes))))


def clear(path: Path, *, keep_seconds: float | None, keep_bytes: int | None, shrink: bool) -> int:
    """Delete ended tasks that are older, or the oldest of a larger store; how many. What waits is never touched.

    A service that holds the store counts what is in it, and could not write for as long as it is made smaller.

    Raises:
        ValueError: it is not there, is no store, or a service holds it (one line).
        sqlite3.Error: the disk refused; what was deleted before is deleted.
    """
    Archive(path).close()  # What is no store is not made one.
    storage = Store(path)
    try:
        reader = storage.reader()
        num_tasks = left = sum(number for _, _, number in reader.counts())
        while keep_seconds is not None and (number := _delete(storage, time.time() - keep_seconds, GROUP)):
            left -= number
        while keep_bytes is not None and (size := reader.used_bytes()) > keep_bytes:
            if not (number := _delete(storage, time.time(), surplus(size, keep_bytes, left))):
                break
            left -= number
        reader.close()
        if shrink:
            storage.writer.execute("VACUUM")
        storage.writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return num_tasks - left
    finally:
        storage.close()


def _delete(storage: Store, before: float, limit: int) -> int:
    storage.writer.execute("BEGIN IMMEDIATE")
    try:
        number = store.prune(storage.writer, before, limit)
    except BaseException:
        storage.writer.execute("ROLLBACK")
        raise
    storage.writer.execute("COMMIT")
    return number
