"""Sections of `h200.py` that call a program of this folder or the tests, or judge a few kernels themselves."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from h200_run import Found, Run, open_pool

ROOT = Path(__file__).parents[1]
SUITE = ROOT / "tests" / "exploits"
MOST_SECONDS = 2.5
MOST_SPREAD = 0.02
"""Of ten verdicts on one kernel."""
MOST_SHIFT = 0.03
"""Of a kernel's time under load, and of a reference's in a runner that has served before."""


# Sections that call a program of this folder or the tests.


def program(run: Run, *command: str) -> subprocess.CompletedProcess[bytes]:
    """Run a program of ours; what it prints goes to this section's log."""
    print("$", " ".join(command), flush=True)
    done = subprocess.run([sys.executable, *command], cwd=ROOT, check=False)
    print("exit code", done.returncode, flush=True)
    return done


def gpu_tests(run: Run) -> Found:
    xml = run.out / "gpu_tests.xml"
    devices = "tests/devices/cuda"
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if "mark.gpu" in path.read_text()]
    chosen = ["-m", "gpu", *(str(path.relative_to(ROOT)) for path in files if SUITE not in path.parents)]
    if not run.on_gpu:
        chosen = [f"{devices}/test_fits.py", f"{devices}/test_window_parts.py"]
    program(run, "-m", "pytest", "-q", "-x" if run.tiny else "--maxfail=20", f"--junitxml={xml}", *chosen)
    counts = {"passed": 0, "skipped": 0}
    wrong: list[str] = []
    for case in ElementTree.parse(xml).iter("testcase"):
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        if bad is not None:
            wrong.append(f"{case.get('classname')}::{case.get('name')}: {(bad.get('message') or '')[:300]}")
        else:
            counts["skipped" if case.find("skipped") is not None else "passed"] += 1
    return counts, wrong + ([] if counts["passed"] else ["no test ran"])


def latencies(run: Run, names: list[str], repeats: int) -> dict[str, Any]:
    """Verdicts of `latency.py` on some of its cases."""
    path = run.out / f"latency-{'-'.join(names)}.json"
    path.unlink(missing_ok=True)
    command = ["--device", run.exact_device, "--repeats", str(repeats), "--out", str(path), "--only", *names]
    program(run, "benchmarks/latency.py", *command)
    return json.loads(path.read_text()) if path.exists() else {}


def latency(run: Run) -> Found:
    name = "elementwise-64MB" if run.on_gpu else "elementwise"
    found = latencies(run, [name], run.some(8, 2))
    median = found.get(name, {}).get("median_s")
    late = median is None or (run.on_gpu and median > MOST_SECONDS)
    return found, [f"{median} s, and {MOST_SECONDS} were wanted"] if late else []


def spread(run: Run) -> Found:
    names = ["softmax-4096", "elementwise-64MB"] if run.on_gpu else ["softmax", "elementwise"]
    found = latencies(run, names, run.some(10, 2))
    wrong: list[str] = []
    for name in names:
        times = found.get(name, {}).get("kernel_ms", [])
        lie_apart = (max(times) - min(times)) / statistics.median(times) if times else None
        found[f"{name} spread"] = lie_apart
        if lie_apart is None or lie_apart > MOST_SPREAD:
            wrong.append(f"{name}: kernel_ms lie {lie_apart} apart")
        fresh, *warm = found.get(name, {}).get("reference_ms", [None])
        if fresh and warm:  # A runner that has served before must not be faster or slower than one that has not.
            found[f"{name} warm runner"] = statistics.median(warm) / fresh - 1
            if abs(found[f"{name} warm runner"]) > MOST_SHIFT:
                wrong.append(f"{name}: the reference took {found[f'{name} warm runner']:+.2%} in a runner used before")
    return found, wrong


def throughput_program(run: Run, *arguments: str) -> dict[str, Any]:
    folder = run.out / "throughput" / arguments[1]
    program(run, "benchmarks/throughput.py", "--device", run.exact_device, "--out", str(folder), *arguments)
    path = folder / "throughput.json"
    return json.loads(path.read_text()) if path.exists() else {}


def disturbance(run: Run) -> Found:
    found = throughput_program(
        run, "--only", "disturbance", "floor", "--seconds", str(run.some(6, 1)), "--num-contexts", str(run.some(4, 1))
    )
    rows = [*found.get("disturbance", []), *found.get("floor", [])]
    return found, [str(row["error"]) for row in rows if "error" in row] + ([] if rows else ["nothing was measured"])


def rates(run: Run, section: str, goal: float, *arguments: str) -> Found:
    """One section of `throughput.py` that judges; every verdict must pass."""
    found = throughput_program(run, "--only", section, *arguments)
    rows = found.get(section, [])
    wrong = [f"{row['verdicts_at_once']} at once: {text}" for row in rows for text in row["not_passed"]]
    best = max((row["per_minute"] for row in rows), default=0.0)
    if run.on_gpu and best < goal:
        wrong.append(f"{best} a minute, and {goal} were wanted")
    return found, wrong + ([] if rows else ["nothing was measured"])


def throughput(run: Run) -> Found:
    return rates(run, "triton", 200.0, "--num", str(run.some(120, 3)), "--num-verdicts", "4", "8")


def load_inline(run: Run) -> Found:
    if not run.on_gpu:
        return {"skipped": "there is no GPU to build for"}, []
    return rates(run, "cuda", 60.0, "--num-cuda", str(run.some(70, 2)), "--num-verdicts", "14")


def audit(run: Run) -> Found:
    """`dojo problems audit`, whose own file goes on where it was."""
    suite = "katas:1/softmax_rows" if run.tiny else "katas"
    path = run.out / "audit.jsonl"
    size = "full" if run.on_gpu else "small"
    command = ["-m", "kerneldojo.cli", "problems", "audit", suite, "--size", size, "--device", run.exact_device]
    done = program(run, *command, "--out", str(path), "--seconds", "60")
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {"findings": rows}, [] if done.returncode == 0 else [f"exit code {done.returncode}: not all were admitted"]


def soak(run: Run) -> Found:
    folder = run.out / "soak"
    minutes = 0.2 if run.tiny else max(0.5, run.seconds / 60 - 1)
    command = ["--device", run.exact_device, "--minutes", str(minutes), "--out", str(folder), "--kill-every", "30"]
    done = program(run, "benchmarks/soak.py", *command, *(["--num", "20"] if run.tiny else []))
    path = folder / "report.json"
    report = json.loads(path.read_text()) if path.exists() else {}
    return report, [] if done.returncode == 0 else [f"exit code {done.returncode}: see the report"]


# Sections that judge the suite of exploits.


# Sections that judge a few kernels themselves.


def compile_baseline(run: Run) -> Found:
    from cases import cases

    from kerneldojo import judge

    found: dict[str, Any] = {}
    wrong: list[str] = []
    case = next(case for case in cases("full" if run.on_gpu else "small") if case.problem.name == "gate")
    for baseline in ("eager", "compile"):
        verdict = judge(case.problem, case.candidate(1), device=run.exact_device, baseline=baseline)
        found[baseline] = verdict.model_dump(mode="json", include={"status", "message", "reference_ms", "kernel_ms"})
        if verdict.status != "passed":
            wrong.append(f"{baseline}: {verdict.status}: {verdict.message}")
    eager, compiled = (found[baseline]["reference_ms"] for baseline in ("eager", "compile"))
    if run.on_gpu and not wrong and abs(eager - compiled) < 0.01 * eager:
        wrong.append("both baselines took the same time: was one compiled at all?")
    return found, wrong


def under_load(run: Run) -> Found:
    """The same kernels, judged one by one and then among others; their times must agree."""
    from cases import cases

    from kerneldojo.schema import Job

    chosen = {case.problem.name: case for case in cases("full" if run.on_gpu else "small")}
    watched, repeats = ["softmax", "swish", "product"], run.some(6, 2)
    pool = open_pool(run, run.at_once)

    def submit(name: str, number: int) -> Future[Any]:
        case = chosen[name]
        return pool.submit(
            Job(problem=case.problem, candidate=case.candidate(number), device=run.exact_device, fresh=True)
        )

    def times(futures: list[tuple[str, Future[Any]]]) -> dict[str, float | None]:
        taken: dict[str, list[float]] = {name: [] for name in watched}
        for name, future in futures:
            verdict = future.result()
            if verdict.kernel_ms is None:
                raise RuntimeError(f"{name}: {verdict.status}: {verdict.message}")
            taken[name].append(verdict.kernel_ms)
        return {name: statistics.median(values) for name, values in taken.items()}

    numbers: Iterator[int] = iter(range(1000, 100_000))
    try:
        for name in chosen:  # What is made once is made before.
            submit(name, next(numbers)).result()
        idle = times([(name, done(submit(name, next(numbers)))) for name in watched for _ in range(repeats)])
        others, futures = [], []
        for _ in range(repeats):
            for name in watched:
                others += [submit(other, next(numbers)) for other in list(chosen)[: run.some(len(chosen), 2)]]
                futures.append((name, submit(name, next(numbers))))
        busy = times(futures)
        failed = [one.result().message for one in others if one.result().status != "passed"]
    finally:
        pool.close(drain=False)
    shifts = {name: busy[name] / idle[name] - 1 for name in watched}  # type: ignore[operator]
    wrong = [f"{name}: {shift:+.2%} under load" for name, shift in shifts.items() if abs(shift) > MOST_SHIFT]
    return {"idle_ms": idle, "busy_ms": busy, "shift": shifts, "others": len(others)}, wrong + failed


def done(future: Future[Any]) -> Future[Any]:
    """Wait for one before the next is begun."""
    future.result()
    return future
