"""Files that are replaced in one piece.

What is new is written beside the file under another name, forced to disk, and takes the file's place by one rename.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


def write_whole(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace a file: whatever happens, it holds either all of `data` or what it held before.

    Args:
        path: the file; its folder must be there.
        data: what it is to hold.
        durable: wait until it is on disk. What can be made anew need not (a disk takes 10 ms and more): it is whole
            whoever is killed, and only a machine that loses its power may leave it torn.

    Raises:
        OSError: it cannot be written; nothing has changed.
    """
    with replacing(path, durable=durable) as temporary:
        temporary.write_bytes(data)


@contextmanager
def replacing(path: Path, *, durable: bool = True) -> Generator[Path]:
    """An empty file beside `path`, for those who write by a name; it takes the place of `path` as the block ends.

    If the block raises, what was written is removed and `path` is as before. A killed process leaves it behind, under
    a name that begins with a dot. For `durable` see `write_whole`.

    Raises:
        OSError: the file cannot be made or put in its place; nothing has changed.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    temporary.touch(exist_ok=False)
    try:
        yield temporary
        if durable:
            sync(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync(path.parent)


def sync(path: Path) -> None:
    """Force to disk what a file holds, or which names a folder has."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
