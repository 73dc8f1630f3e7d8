"""A real service in a process of its own, to be killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent


class ServiceProcess:
    """`dojo serve` on a free port; what it says on standard error is kept in `lines`."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        executor: str = "text",
        env: dict[str, str] | None = None,
        limit: str | None = None,
    ) -> None:
        command = [sys.executable, "-m", "kerneldojo.cli", "serve", "--port", "0", "--store", str(folder / "store.db")]
        command += ["--executor", f"service_executors:{executor}", *arguments]
        if limit is not None:
            command = ["sh", "-c", f'ulimit {limit} && exec "$@"', "sh", *command]
        path = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path, **(env or {})},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self.url = ""
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._ready.wait(60) or not self.url:
            self.kill()
            raise RuntimeError("".join(self.lines[-20:]))

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(r"serving on (http://\S+)", line):
                self.url = found.group(1)
                self._ready.set()
        self._ready.set()

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def terminate(self) -> None:
        """SIGTERM, without waiting."""
        self.process.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        if self.process.poll() is None:
            self.terminate()
        code = self.process.wait(60)
        self._reader.join(10)
        return code

    def __enter__(self) -> ServiceProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()


def becomes(is_so: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether this comes true in time."""
    deadline = time.monotonic() + seconds
    while not (found := is_so()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found
