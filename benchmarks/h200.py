"""Everything that only a GPU can prove, in one command that may be stopped and started again.

    python benchmarks/h200.py --out found                         # all sections, the most important first
    python benchmarks/h200.py --out found --seconds 560           # begin nothing that does not fit into so long
    python benchmarks/h200.py --out found --only honest latency   # these, whatever is there already
    python benchmarks/h200.py --device model:h100 --tiny          # a rehearsal on a machine without a GPU

Each section runs in a process of its own under a time limit of its own, and leaves `OUT/SECTION.json`: whether it
passed, what was found, what was wrong, how long it took. `OUT/summary.txt` says the same in a line for each, and
`OUT/SECTION.log` has what was printed. A section that is done is not done again; one that was cut short goes on where
it was, as far as it consists of verdicts (`OUT/SECTION.jsonl` keeps each).

| section | question |
|---|---|
| `gpu_tests` | do the tests marked `gpu` pass, the suite of exploits apart |
| `honest` | does every honest kernel pass, three times |
| `attacks`, `faults` | does every attack and fault get a verdict that the suite calls right, as it is written |
| `latency` | is a verdict on a 64 MB elementwise kernel there within 2.5 s |
| `spread` | how far ten verdicts on one kernel lie apart, and a used runner's reference from a fresh one's: 3 % |
| `compile_baseline` | is `torch.compile`'s version what the reference is timed as |
| `disturbance` | do contexts that come and go move a figure; how many can be made a minute |
| `throughput`, `load_inline` | verdicts a minute, with several at once |
| `under_load` | is a kernel's time the same within 3 % when the judge is busy with others |
| `audit` | is every kata admitted at full size |
| `soak` | is anything lost or left behind while workers are killed |
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
SUITE = ROOT / "tests" / "exploits"
sys.path[:0] = [str(HERE), str(SUITE)]

from kerneldojo.contestant.sandbox import linux  # noqa: E402

MOST_SECONDS = 2.5
MOST_SPREAD = 0.03


@dataclass(frozen=True)
class Run:
    """What a section is told."""

    device: str
    out: Path
    tiny: bool
    seconds: float
    """How long it may take; it is killed a little later."""
    at_once: int
    """Verdicts under way at once where verdicts, not times, are what is looked at."""

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda")

    @property
    def exact_device(self) -> str:
        """One device, by a name that verdicts bear."""
        return "cuda:0" if self.device == "cuda" else self.device

    def some(self, many: int, few: int) -> int:
        """A count, smaller in a rehearsal."""
        return few if self.tiny else many


Found = tuple[dict[str, Any], list[str]]
"""What a section found, and what of it is wrong."""


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
        chosen = [f"{devices}/test_statistics.py", f"{devices}/test_window_parts.py"]
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
            if abs(found[f"{name} warm runner"]) > MOST_SPREAD:
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
    return rates(run, "triton", 200.0, "--num", str(run.some(120, 3)), "--num-verdicts", "4", "8", "--beside")


def load_inline(run: Run) -> Found:
    if not run.on_gpu:
        return {"skipped": "there is no GPU to build for"}, []
    return rates(run, "cuda", 60.0, "--num-cuda", str(run.some(24, 2)), "--num-verdicts", "8")


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


def open_pool(run: Run, at_once: int) -> Any:
    from kerneldojo.pool import LocalPool, PoolConfig

    config = PoolConfig(num_verdicts_per_gpu=at_once if run.on_gpu else 1, remember=0, cache_folder=None)
    return LocalPool([run.exact_device], None if run.on_gpu else 1, config)


def suite(run: Run, section: str, kind: str, repeats: int) -> Found:
    """Judge every entry of a kind; verdicts are kept as they come, and those that are there are not judged again."""
    import test_suite
    from catalogue import SUITE as ENTRIES

    at = "cuda:0" if run.on_gpu else "cpu"
    left_behind, test_suite.assert_nothing_left = test_suite.assert_nothing_left, lambda: None
    entries = [entry for entry in ENTRIES[kind] if entry.runs_on(at.partition(":")[0])]
    by_file = {entry.file: entry for entry in ENTRIES["attack"]}
    path = run.out / f"{section}.jsonl"
    rows = {row["id"]: row for row in map(json.loads, path.read_text().splitlines())} if path.exists() else {}
    until = time.monotonic() + run.seconds - 15
    pool = open_pool(replace(run, device=at), run.at_once)
    honest = next(entry for entry in ENTRIES["honest"] if entry.name == "swish")
    num_wanted = run.some(len(entries), 3) * repeats * (2 if kind == "fault" else 1)  # Each fault, and who comes next.

    def submit(entry: Any) -> Future[Any]:
        from kerneldojo.schema import Job

        timeout = test_suite.deadline(entry)
        return pool.submit(
            Job(
                problem=test_suite.problem(entry.problem),
                candidate=entry.candidate(),
                device=at,
                protocol=entry.protocol,
                timeout=timeout,
                fresh=True,
            )
        )

    noting = threading.Lock()

    def note(identity: str, entry: Any, evaluation: Any) -> None:
        if time.monotonic() > until:  # The pool is being stopped: this may be no verdict.
            return
        try:
            test_suite.assert_verdict(entry, evaluation, at)
            wrong = ""
        except AssertionError as error:
            wrong = str(error)[:1000] or "refused by the suite"
        told = evaluation.model_dump(
            mode="json", include={"status", "message", "speedup", "coverage", "kernel_ms", "stage_seconds", "notes"}
        )
        row = {"id": identity, "wrong": wrong, **told, "exploits": [one.name for one in evaluation.exploits]}
        with noting, path.open("a") as file:
            file.write(json.dumps(row) + "\n")
            rows[identity] = row

    def judge_one(identity: str, entry: Any) -> None:
        if entry.after is not None:  # What it builds upon comes first.
            submit(by_file[entry.after]).result()
        note(identity, entry, submit(entry).result())
        if kind == "fault":
            note(f"{identity} next", honest, submit(honest).result())

    todo = [
        (identity, entry)
        for number in range(repeats)
        for entry in entries[: run.some(len(entries), 3)]
        if (identity := f"{entry.name}#{number}") not in rows or (kind == "fault" and f"{identity} next" not in rows)
    ]
    if side_by_side(judge_one, todo, run.at_once, until):
        pool.close(drain=False)
        left_behind()
    else:
        print("out of time", flush=True)  # The pool ends with this process: what runs in it is not waited for.
    wrong = [f"{row['id']}: {row['status']}: {row['wrong']}" for row in rows.values() if row["wrong"]]
    statuses = [row["status"] for row in rows.values()]
    found = {"judged": len(rows), "wanted": num_wanted, "statuses": {one: statuses.count(one) for one in set(statuses)}}
    if len(rows) < num_wanted:
        raise Unfinished(found, wrong)
    return found, wrong


def side_by_side(work: Callable[..., None], todo: Sequence[tuple[Any, ...]], at_once: int, until: float) -> bool:
    """Call `work` with the arguments of each of `todo`, some at once; False if they are not done in time.

    Raises:
        whatever `work` raised first.
    """
    left = deque(todo)

    def take() -> tuple[Any, ...] | None:
        with contextlib.suppress(IndexError):
            return left.popleft()
        return None

    ended: SimpleQueue[BaseException | None] = SimpleQueue()

    def lane() -> None:
        try:
            while (one := take()) is not None:
                work(*one)
        except BaseException as error:
            ended.put(error)
        else:
            ended.put(None)

    for _ in range(at_once):
        threading.Thread(target=lane, daemon=True).start()  # Not waited for when the time is over.
    for _ in range(at_once):
        try:
            error = ended.get(timeout=max(0.1, until - time.monotonic()))
        except Empty:
            return False
        if error is not None:
            raise error
    return True


class Unfinished(Exception):
    """Time was up; what was found until then."""

    def __init__(self, found: dict[str, Any], wrong: list[str]) -> None:
        super().__init__("unfinished")
        self.found, self.wrong = found, wrong


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
    pool = open_pool(run, 8)

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
    wrong = [f"{name}: {shift:+.2%} under load" for name, shift in shifts.items() if abs(shift) > MOST_SPREAD]
    return {"idle_ms": idle, "busy_ms": busy, "shift": shifts, "others": len(others)}, wrong + failed


def done(future: Future[Any]) -> Future[Any]:
    """Wait for one before the next is begun."""
    future.result()
    return future


SECTIONS: dict[str, tuple[Callable[[Run], Found], float]] = {
    "gpu_tests": (gpu_tests, 420.0),
    "honest": (partial(suite, section="honest", kind="honest", repeats=3), 400.0),
    "attacks": (partial(suite, section="attacks", kind="attack", repeats=1), 500.0),
    "faults": (partial(suite, section="faults", kind="fault", repeats=1), 240.0),
    "latency": (latency, 120.0),
    "spread": (spread, 180.0),
    "compile_baseline": (compile_baseline, 150.0),
    "disturbance": (disturbance, 180.0),
    "throughput": (throughput, 540.0),
    "load_inline": (load_inline, 300.0),
    "under_load": (under_load, 300.0),
    "audit": (audit, 540.0),
    "soak": (soak, 420.0),
}
"""By importance, each with the most seconds that it may take."""


# The runner.


def child(name: str, run: Run) -> None:
    """One section, in a process of its own; its result goes to a file."""
    started = time.monotonic()
    status = "passed"
    try:
        found, wrong = SECTIONS[name][0](run)
    except Unfinished as unfinished:
        found, wrong, status = unfinished.found, unfinished.wrong, "unfinished"
    if wrong and status == "passed":
        status = "failed"
    write(run.out, name, status, time.monotonic() - started, found, wrong)


def write(out: Path, name: str, status: str, seconds: float, found: dict[str, Any], wrong: list[str]) -> None:
    row = {"section": name, "status": status, "seconds": round(seconds, 1), "wrong": wrong, "found": found}
    part = out / f"{name}.part"
    part.write_text(json.dumps(row, indent=1) + "\n")
    part.replace(out / f"{name}.json")


def attend(name: str, run: Run) -> None:
    """Run one section in a process group of its own, and end all of it when its time is up."""
    path = run.out / f"{name}.json"
    path.unlink(missing_ok=True)
    command = [sys.executable, str(Path(__file__)), "--child", name, "--device", run.device, "--out", str(run.out)]
    command += ["--seconds", str(run.seconds), "--at-once", str(run.at_once), *(["--tiny"] if run.tiny else [])]
    started = time.monotonic()
    with (run.out / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = process.wait(run.seconds + 15)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with_group(process.pid, signal.SIGTERM)
            with_group(process.pid, signal.SIGKILL)
            process.wait()
    if not path.exists():
        what = "it was cut short" if code is None else f"it ended with exit code {code}: see its log"
        status = "unfinished" if code is None else "failed"
        write(run.out, name, status, time.monotonic() - started, {}, [what])


def with_group(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return
    time.sleep(0.5)


def result(out: Path, name: str) -> dict[str, Any] | None:
    path = out / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def summary(out: Path) -> str:
    """A line for each section, and what was wrong in it."""
    lines: list[str] = []
    for name in SECTIONS:
        row = result(out, name)
        lines.append(
            f"{name:17} {'not run' if row is None else row['status']:11} {row['seconds'] if row else 0:7.1f} s"
        )
        lines += [f"    {text[:200]}" for text in (row or {}).get("wrong", [])[:8]]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path("h200"))
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="these sections, also if they are done")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for all of it")
    parser.add_argument("--tiny", action="store_true", help="as few of everything as shows that it runs")
    parser.add_argument("--at-once", type=int, default=4, help="verdicts at once in honest, attacks and faults")
    parser.add_argument("--child", choices=SECTIONS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that what is under way is ended, not left.
    if options.child:
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        child(options.child, Run(options.device, out, options.tiny, options.seconds, options.at_once))
        return
    until = time.monotonic() + options.seconds
    for name in options.only or SECTIONS:
        before = result(out, name)
        if before is not None and before["status"] != "unfinished" and not options.only:
            continue
        seconds = min(SECTIONS[name][1], until - time.monotonic() - 20)
        if seconds < 30:
            break
        print(f"{name} ...", flush=True)
        attend(name, Run(options.device, out, options.tiny, seconds, options.at_once))
        row = result(out, name) or {}
        print(f"{name}: {row.get('status')} after {row.get('seconds')} s", flush=True)
        (out / "summary.txt").write_text(summary(out))
    text = summary(out)
    (out / "summary.txt").write_text(text)
    print(text)
    rows = [result(out, name) for name in SECTIONS]
    sys.exit(any(row is not None and row["status"] == "failed" for row in rows))


if __name__ == "__main__":
    main()
