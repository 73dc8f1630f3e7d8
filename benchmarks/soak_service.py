"""For `soak.py`: a service that may be killed at any moment, and whether its store agrees with what was heard."""

from __future__ import annotations

import argparse
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from kerneldojo.evaluate import read_records
from kerneldojo.evaluate.results import RESULTS
from kerneldojo.schema import Evaluation


def store_says(out: Path) -> dict[str, Any]:
    """Whether the service's store agrees with what its client was told."""
    connection = sqlite3.connect(f"file:{out / 'store.db'}?mode=ro", uri=True)
    found = connection.execute(
        "SELECT tasks.content, tasks.state, tasks.attempts, evaluations.body"
        " FROM tasks LEFT JOIN evaluations ON evaluations.sequence = tasks.sequence"
    ).fetchall()
    connection.close()
    told = {record.job: record.evaluation for record in read_records(out / RESULTS)}
    stored = Counter(content for content, *_ in found)
    bodies = {content: body for content, state, _, body in found if state == "done"}
    return {
        "tasks": len(found),
        "states": dict(Counter(state for _, state, _, _ in found)),
        "started_again": dict(Counter(attempts for _, _, attempts, _ in found if attempts > 1)),
        "doubled": sorted(content for content, number in stored.items() if number > 1),
        "lost": sorted(set(told) - set(bodies)),
        "otherwise": sorted(
            job
            for job, evaluation in told.items()
            if job in bodies and Evaluation.model_validate_json(bodies[job]) != evaluation
        ),
    }


class Service:
    """`dojo serve`, which may be killed and started again at the same address with the same store."""

    def __init__(self, arguments: argparse.Namespace, environment: dict[str, str], known: set[int]) -> None:
        self._out: Path = arguments.out
        self._environment, self._known = environment, known
        self._command = [sys.executable, "-m", "kerneldojo.cli", "serve", "--device", arguments.device]
        self._command += ["--store", str(self._out / "store.db")]
        self.num_kills = 0
        self.url = self._start(0)

    def _start(self, port: int) -> str:
        log = self._out / "service.log"
        with log.open("a") as file:
            written = file.tell()
            command_line = [*self._command, "--port", str(port)]
            self._process = subprocess.Popen(command_line, env=self._environment, stderr=file, cwd=self._out)
        self._known.add(self._process.pid)
        until = time.monotonic() + 180
        while not (found := re.search(r"serving on (http://\S+)", log.read_text()[written:])):
            if self._process.poll() is not None or time.monotonic() > until:
                sys.exit(f"the service did not start: {log.read_text()[-500:]}")
            time.sleep(0.2)
        return found[1]

    def kill(self) -> None:
        """Kill it as nothing in it can foresee, and start it again."""
        self._process.kill()
        self._process.wait()
        self.num_kills += 1
        self._start(int(self.url.rpartition(":")[2]))

    def stop(self) -> int:
        """Let it drain; its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(120)
