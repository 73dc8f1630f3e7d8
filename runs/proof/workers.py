"""Dozens of pieces of work at once on one machine: a process each, begun when what they need is there.

    run_all(pieces, Clock(560, reserve=40), at_once=60)

A process that is asked to stop (SIGTERM) leaves its work where the next one goes on, and says so by `STOPPED`. One that
fails is tried once more, then given up and named; the others go on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proof.clock import Clock

STOPPED = 75
"""Exit code of a process that was asked to stop and can go on."""
GRACE = 25.0
"""Seconds that a process has for stopping."""


@dataclass
class Piece:
    """One process to be."""

    name: str
    command: Sequence[str]
    result: Path
    """There as soon as it is done."""
    needs: Sequence[Path] = ()
    """What must be there before it is begun."""
    log: Path | None = None
    tries: int = field(default=0, compare=False)

    @property
    def is_done(self) -> bool:
        """Whether there is nothing to do."""
        return self.result.exists()

    @property
    def is_ready(self) -> bool:
        """Whether it can be begun."""
        return all(path.exists() for path in self.needs)


def run_all(
    pieces: Sequence[Piece],
    clock: Clock,
    *,
    at_once: int,
    environment: dict[str, str],
    on_end: Callable[[Piece, float], None],
    say: Callable[[str], None] = print,
) -> list[Piece]:
    """Do what is not done, in the order given as far as needs allow; returns what has failed for good.

    Stops by itself when the clock is over: what runs then is asked to stop, and killed after `GRACE` seconds.
    """
    waiting = [piece for piece in pieces if not piece.is_done]
    running: dict[subprocess.Popen[bytes], tuple[Piece, float]] = {}
    failed: list[Piece] = []
    try:
        while (waiting or running) and not clock.is_over:
            for piece in [one for one in waiting if one.is_ready][: max(0, at_once - len(running))]:
                waiting.remove(piece)
                running[_begin(piece, environment)] = piece, time.monotonic()
            if not running and waiting:
                return [*failed, *waiting]  # what they need has failed
            for process in [one for one in running if one.poll() is not None]:
                piece, began = running.pop(process)
                if process.returncode == 0 and piece.is_done:
                    on_end(piece, time.monotonic() - began)
                    continue
                if process.returncode != STOPPED:
                    piece.tries += 1
                    say(f"{piece.name} ended with {process.returncode}: {_last_words(piece)}")
                (waiting if piece.tries < 2 else failed).append(piece)
            time.sleep(0.2)
    finally:
        _stop(list(running))
    return failed


def _begin(piece: Piece, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    if piece.log is None:
        return subprocess.Popen(piece.command, env={**os.environ, **environment}, start_new_session=True)
    piece.log.parent.mkdir(parents=True, exist_ok=True)
    with piece.log.open("ab") as log:
        return subprocess.Popen(
            piece.command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask, wait, insist."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
    until = time.monotonic() + GRACE
    for process in processes:
        try:
            process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _last_words(piece: Piece) -> str:
    if piece.log is None or not piece.log.exists():
        return ""
    lines = piece.log.read_text("utf-8", errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else ""
