"""`examples/training/trainer.py` against a real service with a real judge, both of which are killed."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from service_process import ServiceProcess

from kerneldojo import Client

TRAINER = Path(__file__).parents[2] / "examples" / "training" / "trainer.py"


def trainer(url: str) -> subprocess.Popen[str]:
    command = [sys.executable, TRAINER, url, "--run", "test", "--steps", "2", "--candidates", "5"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_it_loses_and_repeats_nothing_when_the_service_and_it_are_killed(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        arguments = ("--device", "model:h100", "--port", str(probe.getsockname()[1]))
    service = ServiceProcess(tmp_path, *arguments, executor="real")
    try:
        first = trainer(service.url)
        assert first.stdout is not None and " reward " in first.stdout.readline()
        first.kill()
        first.communicate()
        second = trainer(service.url)
        assert second.stdout is not None and " reward " in second.stdout.readline()
        service.kill()
        service = ServiceProcess(tmp_path, *arguments, executor="real")
        told = second.stdout.read()  # Not `communicate`, which knows nothing of what was read ahead for the line above.
        assert second.wait(60) == 0 and told.count('"num_rewards": 5') == 2 and "best: " in told
        again, _ = trainer(service.url).communicate(timeout=60)
        steps = [line for line in told.splitlines() if line.startswith("{")]
        assert [line for line in again.splitlines() if line.startswith("{")] == steps
        with Client(service.url) as client:
            tasks = client.tasks(limit=50).tasks
        assert {task.id for task in tasks} == {f"test-step-{step}-{one}" for step in (0, 1) for one in range(5)}
        assert {task.state for task in tasks} == {"done"}
    finally:
        service.kill()
