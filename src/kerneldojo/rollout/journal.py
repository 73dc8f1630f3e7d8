"""Files of lines that survive being killed.

A line counts once its line break is on disk. Whoever is killed, or runs out of disk, while writing leaves at most one
torn line at the end: readers leave it out, and the next writer cuts it off. Lines are written by one thread in batches,
so that hundreds of episodes share one `fsync` instead of waiting for one each.
"""

from __future__ import annotations

import fcntl
import os
import queue
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path


class RunError(ValueError):
    """A run folder cannot be used as asked; one line says why."""


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Whole lines of a file with their numbers from 1; nothing if there is no such file, a torn last line left out."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                yield number, line


def cut_torn_line(path: Path) -> None:
    """Remove what follows the last line break of a file."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - (1 << 16))
            file.seek(start)
            at = file.read(end - start).rfind(b"\n")
            if at >= 0:
                end = start + at + 1
                break
            end = start
        file.truncate(end)
        os.fsync(file.fileno())


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file in one piece: after a crash it holds either all of `data` or what it held before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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


Entry = tuple[int, bytes, "Future[None]"]


class Journal:
    """Appends lines to several files; each line's future is done once it is on disk."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Open `paths` for appending, torn last lines cut off."""
        self._paths = list(paths)
        for path in self._paths:
            cut_torn_line(path)
        self._files = [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) for path in self._paths]
        sync_folder(self._paths[0].parent)
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
            while not self._entries.empty():
                batch.append(self._entries.get())
            is_open = batch[-1] is not None
            self._write([entry for entry in batch if entry is not None])

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
