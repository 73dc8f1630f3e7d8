"""Removing what a contestant left behind, whatever shape it gave it.

The standard library descends into a tree: with a call and an open file for each level, which a candidate can make more
of than there are. Here a directory's own directories are moved up beside it before it is removed, so that nothing is
ever deeper than one level, and nothing is found by a path that could be too long or lead elsewhere.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(folder: Path) -> None:
    """Remove `folder` and all that is in it, links themselves and not what they lead to; what cannot be, stays."""
    with suppress(OSError):
        top = os.open(folder, DIRECTORY)
        try:
            waiting = os.listdir(top)  # noqa: PTH208 - of what is open
            while waiting:
                waiting += _remove(top, waiting.pop())
        finally:
            os.close(top)
        folder.rmdir()


def _remove(top: int, name: str) -> list[str]:
    """Remove one entry of `top`; the names that directories in it have in `top` now."""
    moved: list[str] = []
    with suppress(OSError):
        if _unlink(top, name):
            return moved
        directory = os.open(name, DIRECTORY, dir_fd=top)
        try:
            for inner in os.listdir(directory):  # noqa: PTH208
                with suppress(OSError):
                    if not _unlink(directory, inner):
                        free = secrets.token_hex(16)
                        os.rename(inner, free, src_dir_fd=directory, dst_dir_fd=top)
                        moved.append(free)
        finally:
            os.close(directory)
        os.rmdir(name, dir_fd=top)
    return moved


def _unlink(directory: int, name: str) -> bool:
    """Remove one entry, unless it is a directory; whether it is gone."""
    try:
        os.unlink(name, dir_fd=directory)
    except IsADirectoryError:
        return False
    except FileNotFoundError:
        return True
    return True
