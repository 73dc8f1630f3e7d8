"""Temporary folders that do not outlive their owner for long, however it ends.

Everything that a judge writes to the temporary folder lies in one folder of its own, which it holds with a lock. The
kernel lets go of the lock when the last process that has it open is gone, whatever killed it. So whoever starts next
removes the folders that nobody holds and leaves those that somebody does: no process id is looked at, and none can be
mistaken for that of another.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import itertools
import os
import secrets
import shutil
import tempfile
import threading
import time
from pathlib import Path

PREFIX = "dojo-judge-"
_UNFINISHED = "dojo-new-"
"""A folder has this name until its lock is held, for whoever sweeps takes one without a lock to be left over."""
_PATIENCE_SECONDS = 5.0
_UNFINISHED_SECONDS = 60.0
"""One that still has that name after so long was left by somebody who was killed within microseconds."""


class Scratch:
    """A folder below the temporary one that is ours until `close` or our end; making it sweeps what others left."""

    def __init__(self) -> None:
        base = Path(tempfile.gettempdir())
        sweep(base)
        made = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=base))
        made.chmod(0o711)  # Contestants run as users of their own: they reach their folders in it, nothing else.
        self._lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.folder = made.with_name(PREFIX + made.name.removeprefix(_UNFINISHED))
        made.rename(self.folder)

    def close(self) -> None:
        """Remove it and all that is in it; what was killed just now may write its last meanwhile."""
        until = time.monotonic() + _PATIENCE_SECONDS
        remove(self.folder)
        while self.folder.exists() and time.monotonic() < until:
            time.sleep(0.05)
            remove(self.folder)
        os.close(self._lock)


def remove(folder: Path) -> None:
    """Remove a folder and all that is in it, however deep; what may not be removed stays.

    `shutil.rmtree` goes down by recursion, and no deeper than Python does. Hosted code nests folders as deep as it
    likes, and one that stayed would be in the way of every judge that sweeps here after us.
    """
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        _flatten(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _flatten(folder: Path) -> None:
    """Bring every folder below `folder` up into it, one after the other, so that none of them holds another."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    fresh = (f"{secrets.token_hex(8)}-{number}" for number in itertools.count())
    top = os.open(folder, flags)
    try:
        pending = _folders_in(top)
        while pending:
            with contextlib.suppress(OSError):  # Not ours to look into, or gone.
                below = os.open(pending.pop(), flags, dir_fd=top)
                try:
                    for name in _folders_in(below):
                        moved = next(fresh)
                        os.rename(name, moved, src_dir_fd=below, dst_dir_fd=top)
                        pending.append(moved)
                finally:
                    os.close(below)
    finally:
        os.close(top)


def _folders_in(descriptor: int) -> list[str]:
    with os.scandir(descriptor) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def sweep(base: Path) -> None:
    """Remove the folders in `base` that judges left behind, those of living judges excepted."""
    for left in base.glob(f"{PREFIX}*"):
        _remove_if_left(left, 0.0)
    for left in base.glob(f"{_UNFINISHED}*"):
        _remove_if_left(left, _UNFINISHED_SECONDS)


def _remove_if_left(folder: Path, least_age: float) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return  # Another user's, or just removed.
    try:
        status = os.fstat(descriptor)
        if status.st_uid == os.geteuid() and time.time() - status.st_mtime >= least_age:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(folder)
    except BlockingIOError:
        pass  # Its owner lives.
    finally:
        os.close(descriptor)


_own: dict[int, Scratch] = {}
_lock = threading.Lock()


def own_folder() -> Path:
    """Where this process puts what is temporary; made on first use, removed at exit.

    A process whose temporary folder is such a folder already (a worker's, which its pool holds) has no other.
    """
    temporary = Path(tempfile.gettempdir())
    if temporary.name.startswith(PREFIX):
        return temporary
    with _lock:
        if os.getpid() not in _own:  # Also in a fork: what its parent holds is not its own.
            _own.clear()
            _own[os.getpid()] = Scratch()
        return _own[os.getpid()].folder


def _leave() -> None:
    scratch = _own.pop(os.getpid(), None)
    if scratch is not None:
        scratch.close()


atexit.register(_leave)  # Here and not on first use: what uses the folder registers later, and so ends before.
