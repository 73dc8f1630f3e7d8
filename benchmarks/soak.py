"""Thousands of mixed candidates, some of them hostile, while the processes that judge are killed at random.

    python benchmarks/soak.py --device model:h100                # 10,000 candidates; 2,000 on a GPU
    python benchmarks/soak.py --device cuda --through service --out soak
    python benchmarks/soak.py --num 300 --kill-service 60        # the service itself is killed too, and started again

A fifth of the candidates is hostile (attacks and faults of `tests/exploits/`), a fifth is broken in ordinary ways, the
rest is honest; no two are alike. Every few seconds a random worker process is killed with -9. Asked at the end:

* Has every candidate exactly one verdict, and is it one that is right for it?
* Is anything left behind: processes, descriptors and threads of the process that owns the pool, shared memory, control
  groups, user ids, temporary files, device memory?
* Through a service: does its store hold one task for each candidate, with the very verdict that the client was told,
  however often the service was killed in between?

Verdicts are on disk as they come (`results.jsonl`). `--minutes`, or SIGTERM, ends the soak in order: nothing new is
begun, what was called back is counted apart (`not_begun`), and the report says what became of the rest.

The pool (or the client of the service) lives in a child process. This process is a *subreaper*: whatever the child
starts and leaves behind becomes a child of this one, in whatever session, so that nothing can hide. Exit code 1 if
anything was lost, doubled or left behind.

Workers die by accident here, and a candidate that is present at two deaths in a row, the second time alone, is held to
be the cause (`docs/pool.md`). Such verdicts are counted apart (`convicted`): with kills this dense they are expected.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SUITE = HERE.parent / "tests" / "exploits"
sys.path[:0] = [str(HERE), str(SUITE)]

import catalogue  # noqa: E402
from cases import cases  # noqa: E402
from soak_service import Service, store_says  # noqa: E402
from soak_watch import Watch, descriptors, host_state, left_behind  # noqa: E402

from kerneldojo.contestant.sandbox import processes  # noqa: E402
from kerneldojo.evaluate import Results, Settings, judge_all, read_items, read_records  # noqa: E402
from kerneldojo.evaluate.results import FAULTS, RESULTS  # noqa: E402
from kerneldojo.schema import Evaluation, Job  # noqa: E402

PR_SET_CHILD_SUBREAPER = 36
GRACE_SECONDS = 30.0
"""What is left this long after the end is left behind."""
BROKEN = {"wrong": ("incorrect",), "unfinished": ("compile_error",), "raises": ("runtime_error",)}
"""Ordinary failures, with their verdicts."""


def broken(source: str, how: str) -> str:
    """An honest candidate with an ordinary mistake."""
    if how == "unfinished":
        return source[: source.index("class ModelNew")] + "class ModelNew(nn.Module:\n"
    if how == "raises":
        return source.replace(
            "        out = torch.empty_like(x)", "        out = torch.empty_like(x).reshape(7, -1, 11)"
        )
    return re.sub(
        r"tl\.store\((.*), (\w[^,]*|[^,]+\(.*\)[^,]*), mask=mask\)", r"tl.store(\1, (\2) * 1.25, mask=mask)", source
    )


def mixture(num: int, hostile_share: float, on_gpu: bool, seed: int, skip: str) -> list[dict[str, Any]]:
    """Rows for `dojo evaluate`, each with what it is and which verdicts are right."""
    draw = random.Random(seed)
    device = "cuda" if on_gpu else "cpu"
    hostile = [
        entry
        for kind in ("attack", "fault")
        for entry in catalogue.SUITE[kind]
        if entry.runs_on(device) and not (skip and re.search(skip, entry.name))
    ]
    honest = cases("full" if on_gpu else "small")
    draw.shuffle(hostile)
    rows: list[dict[str, Any]] = []
    for number in range(num):
        share = draw.random()
        if share < hostile_share and hostile:
            entry = hostile[number % len(hostile)]
            problem = catalogue.problem(entry.problem)
            kind, expect = entry.kind, [*entry.expect, *(["passed"] if entry.harmless else [])]
            source, language = f"{entry.source()}\n# {seed}-{number}\n", entry.language
            name = entry.name
        else:
            case = honest[number % len(honest)]
            problem, source, language, name = case.problem, case.candidate(number).source, "triton", case.problem.name
            kind, expect = "honest", ["passed"]
            if share > 0.8:
                kind, name = "broken", draw.choice(list(BROKEN))
                expect, source = list(BROKEN[name]), broken(source, name)
        row = {"id": f"{number}-{kind}-{name}", "problem": problem.source, "name": problem.name}
        rows.append(row | {"candidate": source, "language": language, "kind": kind, "expect": expect})
    return rows


def is_gpu(device: str) -> bool:
    return device.startswith(("cuda", "auto"))


# The child: owns the pool, or the connection to the service.


class Noting:
    """An executor that notes which jobs it was given, and which of them were called back before they were judged."""

    def __init__(self, executor: Any) -> None:
        self._executor = executor
        self.given: list[str] = []
        """Hashes of jobs, as all here."""
        self.called_back: list[str] = []

    @property
    def num_slots(self) -> int:
        return self._executor.num_slots

    def submit(self, job: Job) -> Future[Evaluation]:
        future = self._executor.submit(job)
        self.given.append(job.hash)
        future.add_done_callback(lambda done: self.called_back.append(job.hash) if done.cancelled() else None)
        return future

    def close(self) -> None:
        self._executor.close()


def judge_rows(arguments: argparse.Namespace) -> None:
    """Judge `items.jsonl` in `--out`; what is left of descriptors and threads goes to `child.json`."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    timer = threading.Timer(60 * arguments.minutes, stop.set) if arguments.minutes < float("inf") else None
    if timer is not None:
        timer.start()
    out: Path = arguments.out
    items, bad = read_items(out / "items.jsonl")
    assert not bad, bad[0]
    settings = Settings(device=arguments.device, protocol=arguments.protocol, timeout=arguments.timeout)
    before = descriptors()
    if arguments.url:
        from kerneldojo.client import ClientExecutor

        executor: Any = ClientExecutor(arguments.url)
    else:
        from kerneldojo.pool import open_pool

        executor = open_pool("local", [arguments.device], num_slots=arguments.slots)
    executor = Noting(executor)
    most = {"descriptors": 0, "threads": 0}

    def look() -> None:
        most["descriptors"] = max(most["descriptors"], len(descriptors()))
        most["threads"] = max(most["threads"], threading.active_count())

    with Results(out) as results:
        remaining = results.remaining(items, settings)
        judge_all(remaining, settings, executor, results, stop=stop, on_tick=look, on_verdict=lambda _, __: look())
    executor.close()
    if timer is not None:
        timer.cancel()
        timer.join()
    begun = set(executor.given) - set(executor.called_back)
    not_begun = [item.id for item in remaining if settings.job(item).hash not in begun]
    del executor
    gc.collect()
    left = Counter(descriptors().values())
    left.subtract(Counter(before.values()))
    report = {
        "descriptors_left": {name: count for name, count in left.items() if count > 0},
        "threads_left": [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()],
        "most": most | {"resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024},
        "not_begun": not_begun,
    }
    (out / "child.json").write_text(json.dumps(report))


# The parent: kills, watches and counts.


def verdicts(rows: list[dict[str, Any]], out: Path, not_begun: set[str]) -> dict[str, Any]:
    """What became of the candidates."""
    expected = {row["id"]: row for row in rows}
    records = {record.id: record for record in read_records(out / RESULTS)}  # Refuses an id that is there twice.
    faults = {record.id for record in read_records(out / FAULTS)} - set(records)
    statuses: dict[str, Counter[str]] = {}
    unexpected, convicted = Counter[str](), Counter[str]()
    for name, record in records.items():
        row, status = expected[name], record.evaluation.status.value
        statuses.setdefault(row["kind"], Counter())[status] += 1
        if "was lost every time" in record.evaluation.message:
            convicted[row["kind"]] += 1
        elif status not in row["expect"]:
            unexpected[f"{name.partition('-')[2]}: {status}: {record.evaluation.message[:120]}"] += 1
    return {
        "asked": len(rows),
        "not_begun": len(not_begun - set(records) - faults),
        "verdicts": len(records),
        "lost": sorted(set(expected) - set(records) - faults - not_begun),
        "faults_of_ours": sorted(faults),
        "foreign": sorted(set(records) - set(expected)),
        "statuses": {kind: dict(counts.most_common()) for kind, counts in statuses.items()},
        "convicted": dict(convicted),
        "unexpected": dict(unexpected.most_common(40)),
    }


def soak(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run it all; the report."""
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    if (out / RESULTS).exists():
        sys.exit(f"{out} holds the results of an earlier soak: choose another --out")
    on_gpu = is_gpu(arguments.device)
    num = arguments.num or (2_000 if on_gpu else 10_000)
    rows = mixture(num, arguments.hostile, on_gpu, arguments.seed, arguments.skip)
    fields = ("id", "problem", "name", "candidate", "language")
    (out / "items.jsonl").write_text("".join(json.dumps({key: row[key] for key in fields}) + "\n" for row in rows))
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        sys.exit("this system cannot make a process inherit orphans")
    scratch = Path(tempfile.mkdtemp(prefix="soak-"))
    scratch.chmod(0o711)  # Contestants are users of their own and pass through it.
    environment = {**os.environ, "TMPDIR": str(scratch)}
    before = host_state(arguments.device)
    started = time.monotonic()
    known: set[int] = set()
    watch = Watch(arguments.kill_every, arguments.kills, arguments.seed, known)
    service = None
    try:
        options = ["--device", arguments.device, "--protocol", arguments.protocol, "--timeout", str(arguments.timeout)]
        options += ["--slots", str(arguments.slots)] if arguments.slots else []
        if arguments.through == "service":
            service = Service(arguments, environment, known)
            options += ["--url", service.url]
        if arguments.minutes < float("inf"):
            options += ["--minutes", str(arguments.minutes)]
        child = subprocess.Popen([sys.executable, __file__, "--child", "--out", str(out), *options], env=environment)
        known.add(child.pid)
        signal.signal(signal.SIGTERM, lambda *_: child.send_signal(signal.SIGTERM))
        _attend(child, service, watch, arguments, num)
        codes = {"child": child.returncode}
        if service is not None:
            codes["service"] = service.stop()
        seconds = time.monotonic() - started
        until = time.monotonic() + GRACE_SECONDS
        while (
            any((left := left_behind(before, arguments.device, watch, scratch)).values()) and time.monotonic() < until
        ):
            time.sleep(0.5)
    finally:
        watch.stop()
        for pid in processes.descendants(os.getpid()):  # Only after they were counted.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(scratch, ignore_errors=True)
    inside = json.loads((out / "child.json").read_text()) if (out / "child.json").exists() else {}
    found = verdicts(rows, out, set(inside.pop("not_begun", [])))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "device": arguments.device,
        "through": arguments.through,
        "protocol": arguments.protocol,
        "seed": arguments.seed,
        "cores": os.cpu_count(),
        "seconds": round(seconds, 1),
        "per_minute": round(60 * found["verdicts"] / seconds, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "load_average": os.getloadavg()[0],
        "workers_killed": watch.num_kills,
        "services_killed": service.num_kills if service else 0,
        "exit_codes": codes,
        **found,
        **({"store": store_says(out)} if service else {}),
        "left_behind": {**left, **inside},
    }


def _attend(
    child: subprocess.Popen[bytes], service: Service | None, watch: Watch, arguments: argparse.Namespace, num: int
) -> None:
    """Wait for the child; say how far it is, and kill the service now and then."""
    out, draw = arguments.out, random.Random(arguments.seed + 1)
    started = told = time.monotonic()
    pause = lambda: draw.expovariate(1 / arguments.kill_service) if arguments.kill_service else float("inf")  # noqa: E731
    next_kill = started + pause()
    while child.poll() is None:
        time.sleep(0.2)
        now = time.monotonic()
        if service is not None and now > next_kill:
            service.kill()
            next_kill = time.monotonic() + pause()
        if now - told > 30:
            told = now
            count = (out / RESULTS).read_bytes().count(b"\n") if (out / RESULTS).exists() else 0
            killed = f"{watch.num_kills} workers killed" + (f", {service.num_kills} services" if service else "")
            print(f"{count}/{num} after {now - started:.0f} s, {killed}", file=sys.stderr, flush=True)


def is_clean(report: dict[str, Any]) -> bool:
    """Whether nothing was lost and nothing left."""
    left = {name: what for name, what in report["left_behind"].items() if name != "most"}
    ended = {"descriptors_left", "threads_left"} <= set(left) and not any(report["exit_codes"].values())
    store = report.get("store", {})
    amiss = [store[name] for name in ("doubled", "lost", "otherwise") if store.get(name)]
    return ended and not (report["lost"] or report["foreign"] or amiss or any(left.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="model:h100")
    parser.add_argument("--num", type=int, help="candidates; 10,000 by default, 2,000 on a GPU")
    parser.add_argument("--hostile", type=float, default=0.2, help="share of hostile candidates")
    parser.add_argument("--skip", default="", help="pattern of hostile candidates to leave out")
    parser.add_argument("--kill-every", type=float, default=10.0, help="mean seconds between kills")
    parser.add_argument("--kills", type=int, help="at most so many")
    parser.add_argument("--through", choices=["pool", "service"], default="pool")
    parser.add_argument(
        "--kill-service", type=float, default=0.0, help="mean seconds between kills of the service; implies --through"
    )
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing new after so long")
    parser.add_argument("--protocol", default="standard")
    parser.add_argument("--timeout", type=float, help="seconds that a candidate has; 20 by default, 60 on a GPU")
    parser.add_argument("--slots", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for items, results and report.json")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.timeout is None:
        arguments.timeout = 60.0 if is_gpu(arguments.device) else 20.0
    if arguments.child:
        judge_rows(arguments)
        return
    if arguments.kill_service:
        arguments.through = "service"
    arguments.out = (arguments.out or Path(tempfile.mkdtemp(prefix="dojo-soak-"))).resolve()
    report = soak(arguments)
    text = json.dumps(report, indent=1)
    (arguments.out / "report.json").write_text(text + "\n")
    print(text)
    sys.exit(0 if is_clean(report) else 1)


if __name__ == "__main__":
    main()
