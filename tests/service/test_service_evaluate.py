"""`dojo evaluate --url`: a service judges, with a token, and what it says is recorded here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from service_process import ServiceProcess, becomes

from kerneldojo import Client
from kerneldojo.evaluate import read_records

SOURCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x
def get_inputs():
    return [torch.randn(4)]
def get_init_inputs():
    return []
"""
TOKEN = "a-token:that-is-long-enough-to-be-taken"


def evaluate(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kerneldojo.cli", "evaluate", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env={name: value for name, value in os.environ.items() if name != "KERNELDOJO_TOKEN"},
        check=False,
    )


def started(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kerneldojo.cli", "evaluate", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def write_input(path: Path, sources: Iterable[str]) -> None:
    path.write_text("".join(json.dumps({"problem": SOURCE, "candidate": source}) + "\n" for source in sources))


def test_what_runs_at_a_service_is_recorded_after_ctrl_c_and_what_waits_there_is_cancelled(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out"
    write_input(source, [f"sleep 2 {number}" for number in range(20)])
    with ServiceProcess(tmp_path, "--device", "cpu", executor="logged") as service, Client(service.url) as client:
        stopped = started(source, "--out", out, "--device", "cpu", "--url", service.url)
        assert becomes(lambda: client.overview().queue.running == 4 and client.overview().queue.queued == 16)
        stopped.send_signal(signal.SIGINT)
        _, errors = stopped.communicate(timeout=60)
        assert stopped.returncode == 130, errors
        assert "start the same command again for the 16 that are left" in errors
        tasks = client.tasks(limit=100).tasks
        assert sorted(task.state.value for task in tasks) == ["cancelled"] * 16 + ["done"] * 4
        judged = (tmp_path / "judged.log").read_text().split()
        records = list(read_records(out / "results.jsonl"))
        assert sorted(record.candidate.source.split()[-1] for record in records) == sorted(judged)
        assert len(records) == 4
        again = evaluate(source, "--out", out, "--device", "cpu", "--url", service.url, "--json")
        assert again.returncode == 0, again.stderr
        assert json.loads(again.stdout)["num_judged_now"] == 16
        assert sorted((tmp_path / "judged.log").read_text().split(), key=int) == [str(number) for number in range(20)]
        assert client.overview().states == {"cancelled": 16, "done": 20}
        assert service.stop() == 0


def test_after_a_kill_the_next_run_finds_its_tasks_again_and_none_is_judged_twice(tmp_path: Path) -> None:
    """Equal jobs of different lines are tasks of their own all the same."""
    source, out = tmp_path / "in.jsonl", tmp_path / "out"
    write_input(source, [f"sleep 1 {number // 2}" for number in range(32)])
    with ServiceProcess(tmp_path, "--device", "cpu", executor="logged") as service, Client(service.url) as client:
        arguments = (source, "--out", out, "--device", "cpu", "--url", service.url)
        results = out / "results.jsonl"
        for number in range(2):
            killed = started(*arguments)
            assert becomes(lambda number=number: results.exists() and results.read_bytes().count(b"\n") > 5 * number)
            killed.kill()
            killed.communicate()
            assert killed.returncode == -signal.SIGKILL
            assert number or client.overview().states["queued"]
        tasks = client.tasks(limit=100).tasks
        assert len(tasks) == 32
        run_id = (out / "run_id").read_text().strip()
        assert len(run_id) == 32 and all(task.id.startswith(f"{run_id}-") for task in tasks)
        done = evaluate(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        assert client.overview().states == {"done": 32}
        assert all(task.attempts == 1 for task in client.tasks(limit=100).tasks)
        judged = (tmp_path / "judged.log").read_text().split()
        assert sorted(judged, key=int) == [str(number // 2) for number in range(32)]
        records = list(read_records(results))
        assert sorted(record.id for record in records) == sorted(f"line-{number + 1}" for number in range(32))
        assert service.stop() == 0


def test_a_fault_is_tried_again_as_another_task_and_a_fresh_run_finds_nothing_again(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out"
    write_input(source, ["infrastructure_error 1", "passed 2"])
    with ServiceProcess(tmp_path, "--device", "cpu", executor="logged") as service, Client(service.url) as client:
        arguments = (source, "--out", out, "--device", "cpu", "--url", service.url)
        for _ in range(2):
            assert evaluate(*arguments).returncode == 3
        assert sorted((tmp_path / "judged.log").read_text().split()) == ["1", "1", "2"]
        run_id = (out / "run_id").read_text()
        (out / "faults.jsonl").unlink()
        assert evaluate(*arguments).returncode == 3
        assert client.overview().states == {"done": 3} and (out / "run_id").read_text() == run_id
        (out / "faults.jsonl").unlink()
        assert evaluate(*arguments, "--fresh").returncode == 3
        assert client.overview().states == {"done": 4} and (out / "run_id").read_text() != run_id
        assert service.stop() == 0


def test_a_service_judges_and_every_verdict_is_recorded_once(tmp_path: Path) -> None:
    rows = [
        {"problem": SOURCE, "candidate": f"{'passed' if number % 2 else 'exploit'} {number}"} for number in range(60)
    ]
    source, tokens, out = tmp_path / "in.jsonl", tmp_path / "tokens", tmp_path / "out"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tokens.write_text(f"me:{TOKEN}\n")
    with ServiceProcess(tmp_path, "--device", "cpu", "--token-file", str(tokens)) as service:
        arguments = (source, "--out", out, "--device", "cpu", "--url", service.url)
        refused = evaluate(*arguments)
        assert refused.returncode == 2
        assert TOKEN not in refused.stderr
        assert "--token-file" in refused.stderr
        assert refused.stderr.count("\n") == 1
        done = evaluate(*arguments, "--token-file", tokens, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["statuses"] == {"passed": 30, "exploit": 30}
        records = list(read_records(out / "results.jsonl"))
        assert sorted(record.id for record in records) == sorted(f"line-{number + 1}" for number in range(60))
        again = evaluate(*arguments, "--token-file", tokens, "--json")
        assert json.loads(again.stdout)["num_judged_now"] == 0
        assert service.stop() == 0
