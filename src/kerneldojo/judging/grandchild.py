"""A process of ours that another process of ours has forked: as a child is held, but nobody here can reap it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess


class Grandchild:
    """Held by a pidfd, so that its id cannot come to mean another; offers what is used of `subprocess.Popen`.

    Args:
        pid: its id. It must not have been reaped before this returns: see that it is alive afterwards.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """None while it lives; then 0, since only its parent is told more."""
        poller = select.poll()
        poller.register(self._pidfd, select.POLLIN)
        return 0 if poller.poll(0) else None

    def wait(self, timeout: float | None = None) -> None:
        """Wait until it has ended; raises `subprocess.TimeoutExpired`. Then it is nobody's to be held."""
        poller = select.poll()
        poller.register(self._pidfd, select.POLLIN)
        if not poller.poll(None if timeout is None else timeout * 1000):
            raise subprocess.TimeoutExpired([], timeout or 0.0)
        self.release()

    def kill(self) -> None:
        """End it, if it has not ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def release(self) -> None:
        """Hold it no longer."""
        os.close(self._pidfd)
