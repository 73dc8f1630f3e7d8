"""A short soak: mixed candidates while workers are killed; and that the soak sees what is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
LEFTOVERS = """
import argparse, ctypes, json, subprocess, sys, time
from pathlib import Path
sys.path.insert(0, {benchmarks!r})
import soak
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
scratch = Path({scratch!r})
before = soak.host_state("cpu")
watch = soak.Watch(1000.0, 0, 0, set())
clean = soak.left_behind(before, "cpu", watch, scratch)
# An orphan in a session of its own, whose parent is gone, with a file in shared memory and one in the scratch folder.
code = "import subprocess, sys; subprocess.Popen(['sleep', '30'], start_new_session=True)"
subprocess.run([sys.executable, "-c", code], check=True)
(scratch / "left").touch()
shared = Path("/dev/shm") / {shared!r}
shared.touch()
try:
    print(json.dumps([clean, soak.left_behind(before, "cpu", watch, scratch)]))
finally:
    shared.unlink()
    watch.stop()
    for pid in soak.processes.descendants(soak.os.getpid()):
        soak.os.kill(pid, 9)
"""


def test_whatever_is_left_behind_is_seen(tmp_path: Path) -> None:
    shared = f"kerneldojo-test-{os.getpid()}"
    code = LEFTOVERS.format(benchmarks=str(BENCHMARKS), scratch=str(tmp_path), shared=shared)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    clean, found = json.loads(done.stdout)
    assert clean["processes"] == clean["temporary_files"] == []
    assert any("sleep 30" in line for line in found["processes"])
    assert found["temporary_files"] == ["left"]
    assert shared in found["shared_memory"]


@contextmanager
def running(command: list[str]) -> Generator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_nothing_is_lost_and_nothing_left_while_workers_are_killed(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "soak.py"), "--out", str(tmp_path / "soak"), "--seed", "9"]
    command += ["--num", "40", "--kills", "3", "--kill-every", "3", "--slots", "1", "--protocol", "quick"]
    with running([*command, "--timeout", "20"]) as process:
        output, errors = process.communicate(timeout=280)
    assert output, errors
    report = json.loads(output)
    left = {name: what for name, what in report["left_behind"].items() if name not in ("most", "shared_memory")}
    assert not any(left.values()), left  # Shared memory that is new may be another program's.
    assert report["exit_codes"] == {"child": 0}
    assert report["asked"] == report["verdicts"] == 40
    assert report["lost"] == report["foreign"] == report["faults_of_ours"] == []
    assert report["workers_killed"] >= 1
    assert report["unexpected"] == {}
    # One that was present at a killing twice, the second time alone, is convicted; of three kills that takes two.
    assert report["statuses"]["honest"].get("passed", 0) + report["convicted"].get("honest", 0) == sum(
        report["statuses"]["honest"].values()
    )
