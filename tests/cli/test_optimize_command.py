"""`dojo optimize` for real: the teacher writes, the pool judges, and what is written holds when it is judged again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from endpoint_server import EndpointServer, running
from kerneldojo import judge
from kerneldojo.problems.suite import load_suite
from kerneldojo.search.proof import Proof

EXAMPLES = Path(__file__).parents[2] / "examples"


def dojo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from kerneldojo.cli import app; app()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280)


def model_in(folder: Path) -> Path:
    path = folder / "chain.py"
    path.write_text(load_suite("graphs:validation", size="small")[0].source)
    return path


def optimize(path: Path, policy: str, *more: str) -> subprocess.CompletedProcess[str]:
    rules = ("--device", "model:h100", "--protocol", "quick", "--calls", "2", "--at-once", "1")
    return dojo("optimize", str(path), "--policy", policy, *rules, *more)


def test_the_kernel_that_is_written_is_the_one_that_was_proven(tmp_path: Path) -> None:
    done = optimize(model_in(tmp_path), "teacher:tuned", "--json")
    assert done.returncode == 0, done.stderr
    proof = Proof.model_validate_json((tmp_path / "chain_optimized.proof.json").read_text())
    assert json.loads(done.stdout)["speedup"] == proof.speedup > 1
    assert (tmp_path / "chain_optimized.py").read_text() == proof.candidate.source
    assert proof.second.protocol.name == "strict" and proof.first.protocol.name == "quick"
    assert proof.spent.calls == 2
    again = judge(proof.problem, proof.candidate, device="model:h100", protocol="quick")
    assert again.candidate_hash == proof.candidate_hash
    assert again.speedup == proof.speedup, "a modelled speedup is the same whoever asks"


def test_a_search_that_is_stopped_gives_the_best_so_far(tmp_path: Path) -> None:
    server = EndpointServer()
    server.reply["content"] = f"```python\n{(EXAMPLES / 'honest.py').read_text()}\n```"
    target = tmp_path / "kernel.py"
    with running(server) as address:
        command = [
            "optimize",
            str(EXAMPLES / "reference.py"),
            "--policy",
            f"openai:m@{address}/v1",
            "--out",
            str(target),
        ]
        command += ["--device", "model:h100", "--protocol", "quick", "--calls", "500", "--at-once", "1"]
        whole = [sys.executable, "-c", "from kerneldojo.cli import app; app()", *command]
        environment = {**os.environ, "OPENAI_API_KEY": "x"}
        process = subprocess.Popen(whole, stderr=subprocess.PIPE, text=True, env=environment)
        while len(server.seen) < 3 and process.poll() is None:  # so that two have their verdicts
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert "finishing what runs; once more to leave it" in errors
    assert f"stopped after {len(server.seen)} answers" in errors
    proof = Proof.model_validate_json((tmp_path / "kernel.proof.json").read_text())
    assert proof.candidate.source == target.read_text() and 3 <= proof.spent.calls == len(server.seen) < 500


def test_nothing_is_written_where_nothing_is_faster(tmp_path: Path) -> None:
    done = optimize(model_in(tmp_path), "teacher:broken", "--strategy", "parallel")
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("dojo: nothing was written: of 2 answers none passed")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chain.py"]
    told = json.loads(optimize(model_in(tmp_path), "teacher:broken", "--strategy", "parallel", "--json").stdout)
    assert told["speedup"] is None and told["message"].startswith("nothing was written: of 2 answers none passed")
    assert told["spent"]["calls"] == 2


def test_bad_usage_is_one_line(tmp_path: Path, dojo_here: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    path = model_in(tmp_path)
    for arguments, words in (
        ((str(path), "--policy", "oracle:9"), "unknown policy"),
        ((str(path), "--strategy", "mcts"), "unknown strategy"),
        ((str(path), "--policy", "openai:m@http://localhost:9/v1", "--policy-option", "wit=1"), "policy setting wit"),
        ((str(path), "--policy-option", "quality"), "expected dotted.key=value"),
        ((str(tmp_path / "absent.py"),), "cannot read"),
    ):
        done = dojo_here("optimize", *arguments, "--device", "model:h100")
        assert done.returncode == 2, done.stderr
        assert len(done.stderr.strip().splitlines()) == 1 and words in done.stderr
