"""Python's collector of reference cycles, which would walk over everything again and again while episodes are played.

Hundreds of requests at once are hundreds of thousands of objects that come and go. Every 700 more of them that live set
off a collection; each full one walks over all there is, and nearly all of that was there before and stays: torch alone
brings a hundred thousand objects. `undisturbed` sets these aside (`gc.freeze`) and collects less often. What is made
meanwhile is collected as ever, and what was set aside is freed as ever by its reference counts; only cycles among the
old wait until the end.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager

NUM_YOUNG = 10_000
"""New objects that set off a collection: more than what a few hundred requests need that are soon answered."""

_lock = threading.Lock()
_within: list[tuple[int, int, int]] = []
"""For each play that goes on, the thresholds that it found."""


@contextmanager
def undisturbed() -> Generator[None]:
    """Within it, collections are rare and pass over what was there at its beginning; of several at once, the last ends.

    A program that has set its own objects aside, or has collections off, knows what it does and is left alone.
    """
    with _lock:
        is_ours = bool(_within) or (gc.get_freeze_count() == 0 and gc.isenabled() and gc.get_threshold()[0] > 0)
        if is_ours:
            _within.append(gc.get_threshold())
        if len(_within) == 1 and is_ours:
            gc.freeze()
            gc.set_threshold(max(NUM_YOUNG, _within[0][0]), *_within[0][1:])
    try:
        yield
    finally:
        with _lock:
            found = _within.pop() if is_ours else None
            if found and not _within:
                gc.set_threshold(*found)
                gc.unfreeze()
