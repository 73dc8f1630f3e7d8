"""Files of lines.

Whoever is killed, or runs out of disk, while writing leaves at most one torn line at the end: readers leave it out, and
the next writer cuts it off.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kerneldojo.files.whole import sync


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
        size = end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - (1 << 16))
            file.seek(start)
            at = file.read(end - start).rfind(b"\n")
            if at >= 0:
                end = start + at + 1
                break
            end = start
        if end < size:
            file.truncate(end)
            os.fsync(file.fileno())


def append_line(path: Path, line: bytes) -> None:
    """Add one line; it is on disk when this returns. For many writers at once there is `Journal`.

    Args:
        path: made if it is not there; a torn last line is cut off.
        line: without its line break.

    Raises:
        OSError: it cannot be written; at most a torn line is left.
    """
    is_new = not path.exists()
    cut_torn_line(path)
    with path.open("ab") as file:
        file.write(line + b"\n")
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        sync(path.parent)
