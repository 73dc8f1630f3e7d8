"""What this process has open: a test that says what it left behind compares by name, never by number.

What earlier tests of the same process left (a pool that still closes, a thread that still reads) may be closed while a
test runs; that is no leak of its own, and a count would take it for one or hide one behind it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path


def open_files() -> set[tuple[str, str]]:
    """Each open descriptor's number with what it is, as `{("3", "pipe:[1234]"), ...}`."""
    found: set[tuple[str, str]] = set()
    for path in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):  # The folder's own, and what another thread closes.
            found.add((path.name, str(path.readlink())))
    return found
