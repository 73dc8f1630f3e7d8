"""Ctrl-C in two steps: the first lets what runs finish, so that nothing paid for is lost; the second leaves it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager

from kerneldojo.cli.streams import say

INTERRUPTED = 130
"""Exit code of a command that was asked to stop."""


@contextmanager
def stopping() -> Generator[threading.Event]:
    """An event that the first Ctrl-C (or SIGTERM) sets; the next one is a KeyboardInterrupt as always."""
    stop = threading.Event()

    def handle(number: int, _: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        say("finishing what runs; once more to leave it")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
