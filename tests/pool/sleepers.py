"""Real processes that sleep, as a gate sees the sessions of verdicts."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path


class Sleeper:
    """A real process, as a gate sees a session; it counts how often it is stopped."""

    def __init__(self) -> None:
        self.ended = None
        self.process = subprocess.Popen(["sleep", "600"])
        self.num_stops = 0
        self.fault: Exception | None = None

    @property
    def is_stopped(self) -> bool:
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def pids(self) -> list[int]:
        return [self.process.pid]

    def wait_started(self, timeout: float = 30.0) -> None: ...

    def order_freeze(self) -> None:
        self.num_stops += 1
        os.kill(self.process.pid, signal.SIGSTOP)

    def wait_frozen(self, timeout: float = 5.0) -> None:
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)
        if self.fault is not None:
            raise self.fault

    def thaw(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)
        os.waitid(os.P_PID, self.process.pid, os.WCONTINUED)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
