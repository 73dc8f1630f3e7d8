"""One process writes to a folder at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class RunError(ValueError):
    """A run folder cannot be used as asked; one line says why."""


class Lock:
    """Held by the one process that writes to a folder; the system lets go of it when that process ends, however."""

    def __init__(self, path: Path) -> None:
        """Take the lock.

        Raises:
            RunError: another process holds it.
        """
        self._file = path.open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            holder = self._file.read(20).strip() or "unknown"
            self._file.close()
            raise RunError(f"{path.parent}: another run (process {holder}) is writing to it") from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def release(self) -> None:
        """Let others write."""
        self._file.close()
