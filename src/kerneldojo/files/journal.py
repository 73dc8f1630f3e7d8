"""Many writers, one thread.

Lines are written in batches, so that hundreds of episodes share one `fsync` instead of waiting for one each.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from kerneldojo.files.lines import cut_torn_line
from kerneldojo.files.whole import sync

Entry = tuple[int, bytes, "Future[None]"]


class Journal:
    """Appends lines to several files; each line's future is done once it is on disk."""

    def __init__(self, paths: Sequence[Path], *, pause: float = 0.0) -> None:
        """Open `paths` for appending, torn last lines cut off.

        Args:
            paths: the files, which are made where they are not there.
            pause: seconds between the end of one write and the next. A line that comes after a longer silence is
                written at once; lines that come quickly are written together, for each write costs a switch of threads
                and an `fsync`, however short the line.
        """
        self._paths = list(paths)
        self._pause, self._written = pause, -pause
        for path in self._paths:
            cut_torn_line(path)
        self._files = [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) for path in self._paths]
        sync(self._paths[0].parent)
        self._entries: queue.SimpleQueue[Entry | None] = queue.SimpleQueue()
        self._failure: OSError | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._write_all, name="journal", daemon=True)
        self._thread.start()

    def append(self, file: int, line: bytes) -> Future[None]:
        """Append a line to file number `file`, without waiting.

        Returns:
            A future that is done once the line is on disk, or raises `OSError` if it cannot be written. After the
            first failure nothing more is written: the file may end in a torn line.
        """
        done: Future[None] = Future()
        if self._is_closed:
            raise RuntimeError("the journal is closed")
        self._entries.put((file, line, done))
        return done

    def close(self) -> None:
        """Write what was accepted, then close the files.

        Raises:
            OSError: something could not be written.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._entries.put(None)
        self._thread.join()
        for descriptor in self._files:
            os.close(descriptor)
        if self._failure is not None:
            raise self._failure

    def _write_all(self) -> None:
        is_open = True
        while is_open:
            batch = [self._entries.get()]
            left = self._written + self._pause - time.monotonic()
            if left > 0 and batch[0] is not None and not self._is_closed:
                time.sleep(left)
            while not self._entries.empty():
                batch.append(self._entries.get())
            is_open = batch[-1] is not None
            self._write([entry for entry in batch if entry is not None])
            self._written = time.monotonic()

    def _write(self, batch: list[Entry]) -> None:
        if self._failure is None:
            try:
                for number, descriptor in enumerate(self._files):
                    data = b"".join(line + b"\n" for file, line, _ in batch if file == number)
                    if data:
                        _write_fully(descriptor, data)
                        os.fsync(descriptor)
            except OSError as error:
                self._failure = error
        for _, _, done in batch:
            if not done.set_running_or_notify_cancel():
                continue
            if self._failure is None:
                done.set_result(None)
            else:
                done.set_exception(self._failure)


def _write_fully(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
