"""The peers, judging some of the same candidates with their own code: for `throughput.py`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from kerneldojo.schema import Job

PEERS = Path(__file__).parent / "peers"
NUM_ROUNDS, NUM_TRIALS = 5, 100
"""Of the protocol `standard`."""


def kernelbench(checkout: Path, jobs: list[Job], python: str, most: float) -> dict[str, Any]:
    """KernelBench's evaluation, a fresh process each, for at most so many seconds."""
    until = time.perf_counter() + most
    seconds: list[float] = []
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, job in enumerate(jobs):
            problem, kernel = folder / f"problem{number}.py", folder / f"kernel{number}.py"
            problem.write_text(job.problem.source)
            kernel.write_text(job.candidate.source)
            command = [python, str(PEERS / "kernelbench.py"), str(checkout), str(problem), str(kernel)]
            command += [str(NUM_ROUNDS), str(NUM_TRIALS), job.candidate.language]
            started = time.perf_counter()
            found.append(told(command, folder, until - started))
            if found[-1]["correct"]:
                seconds.append(time.perf_counter() - started)
            if time.perf_counter() > until:
                break
    return peer_summary(seconds, found)


def kernelgym(checkout: Path, jobs: list[Job], python: str, most: float) -> dict[str, Any]:
    """KernelGYM's worker pool with its default settings, for at most so many seconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [(job.problem.source, job.candidate.source, job.candidate.language) for job in jobs]
        keys = ("problem", "candidate", "backend")
        lines = [json.dumps(dict(zip(keys, row, strict=True))) for row in rows]
        (folder / "tasks.jsonl").write_text("\n".join(lines))
        command = [python, str(PEERS / "kernelgym.py"), str(checkout), str(folder / "tasks.jsonl")]
        done = run_peer([*command, str(NUM_ROUNDS), str(NUM_TRIALS)], folder, most)
    found = [json.loads(line[7:]) for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if len(found) < len(jobs):
        found.append({"correct": False, "error": last_line(done)})
    return peer_summary([one["seconds"] for one in found if one["correct"]], found)


def told(command: list[str], folder: Path, most: float) -> dict[str, Any]:
    """What a driver printed of one candidate."""
    done = run_peer(command, folder, most)
    lines = [line[7:] for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return json.loads(lines[-1]) if lines else {"correct": False, "error": last_line(done)}


def run_peer(command: list[str], folder: Path, most: float) -> subprocess.CompletedProcess[str]:
    """Run a driver with caches of its own, so that nothing compiled earlier helps it.

    After `most` seconds it is ended with all that it started, and what it printed until then is what it told.
    """
    caches = {"TRITON_CACHE_DIR": str(folder / "triton"), "TORCH_EXTENSIONS_DIR": str(folder / "extensions")}
    environment = {**os.environ, **caches}
    out, errors, note = folder / "out.txt", folder / "errors.txt", ""
    with out.open("w") as stdout, errors.open("w") as stderr:
        process = subprocess.Popen(
            command, stdout=stdout, stderr=stderr, env=environment, cwd=folder, start_new_session=True
        )
        try:
            process.wait(most)
        except subprocess.TimeoutExpired:
            note = f"\ncut short after {most:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
    return subprocess.CompletedProcess(command, code, out.read_text(), errors.read_text() + note)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:300]


def peer_summary(seconds: list[float], found: list[dict[str, Any]]) -> dict[str, Any]:
    """Rate of the evaluations that ended as they should: a failure says nothing of how long one takes."""
    errors = Counter(str(one.get("error", "judged incorrect")) for one in found if not one["correct"])
    summary: dict[str, Any] = {"evaluations": len(found), "correct": len(seconds)}
    if seconds:
        summary |= {"per_minute": round(60 * len(seconds) / sum(seconds), 2), "mean_seconds": statistics.mean(seconds)}
    return summary | {"errors": dict(errors.most_common(5))}
