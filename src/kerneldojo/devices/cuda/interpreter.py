"""The interpreter for one thread alone, while it watches a clock.

Python's threads take the interpreter from each other every so often (`sys.setswitchinterval`): a clock that is read by
one thread is read late when another has something to do just then. While anybody is in here, whoever asks for the
interpreter waits until it is let go, as it is by all that waits for the device or for a socket; at last after
`LONGEST_SECONDS`.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Generator

LONGEST_SECONDS = 0.05
"""Windows take some milliseconds; one that hangs must not keep everybody else."""

HALF_A_MICROSECOND = 5e-7
"""Python counts the interval in microseconds, rounded down: what it tells and is told again would become less and
less."""

_lock = threading.Lock()
_inside: list[float] = []
"""The usual interval, once for each thread that is in here."""


@contextlib.contextmanager
def alone_with_the_interpreter() -> Generator[None]:
    """A context in which no other thread of this process takes the interpreter from this one."""
    with _lock:
        _inside.append(_inside[0] if _inside else sys.getswitchinterval())
        sys.setswitchinterval(max(LONGEST_SECONDS, _inside[0]))
    try:
        yield
    finally:
        with _lock:
            usual = _inside.pop()
            if not _inside:
                sys.setswitchinterval(usual + HALF_A_MICROSECOND)
