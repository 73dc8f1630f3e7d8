"""Thousands of mixed candidates, some of them hostile, while the processes that judge are killed at random.

    python benchmarks/soak.py --device model:h100                # 10,000 candidates; 2,000 on a GPU
    python benchmarks/soak.py --device cuda --through service --out soak

A fifth of the candidates is hostile (attacks and faults of `tests/exploits/`), a fifth is broken in ordinary ways, the
rest is honest; no two are alike. Every few seconds a random worker process is killed with -9. Asked at the end:

* Has every candidate exactly one verdict, and is it one that is right for it?
* Is anything left behind: processes, descriptors and threads of the process that owns the pool, shared memory, control
  groups, user ids, temporary files, device memory?

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
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SUITE = HERE.parent / "tests" / "exploits"
sys.path[:0] = [str(HERE), str(SUITE)]

import catalogue  # noqa: E402
from cases import cases  # noqa: E402

from kerneldojo.contestant.sandbox import processes  # noqa: E402
from kerneldojo.contestant.sandbox.cgroups import host_groups  # noqa: E402
from kerneldojo.evaluate import Results, Settings, judge_all, read_items, read_records  # noqa: E402
from kerneldojo.evaluate.results import FAULTS, RESULTS  # noqa: E402

PR_SET_CHILD_SUBREAPER = 36
WORKER = b"kerneldojo.pool.worker"
GRACE_SECONDS = 30.0
"""What is left this long after the end is left behind."""
DEVICE_MEMORY_SLACK = 64 << 20
"""Bytes of device memory by which a driver's own use may differ."""
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


# The child: owns the pool, or the connection to the service.


def judge_rows(arguments: argparse.Namespace) -> None:
    """Judge `items.jsonl` in `--out`; what is left of descriptors and threads goes to `child.json`."""
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
    most = {"descriptors": 0, "threads": 0}

    def look() -> None:
        most["descriptors"] = max(most["descriptors"], len(descriptors()))
        most["threads"] = max(most["threads"], threading.active_count())

    with Results(out) as results:
        remaining = results.remaining(items, settings)
        judge_all(remaining, settings, executor, results, on_tick=look, on_verdict=lambda _, __: look())
    executor.close()
    gc.collect()
    left = Counter(descriptors().values())
    left.subtract(Counter(before.values()))
    report = {
        "descriptors_left": {name: count for name, count in left.items() if count > 0},
        "threads_left": [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()],
        "most": most,
    }
    (out / "child.json").write_text(json.dumps(report))


def descriptors() -> dict[int, str]:
    """What this process holds open, with numbers of sockets and pipes left out."""
    found: dict[int, str] = {}
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found[int(path.name)] = re.sub(r"\[\d+\]", "", str(path.readlink()))
    return found


# The parent: kills, watches and counts.


class Watch:
    """Kills workers at random, and knows every process that ever was below this one."""

    def __init__(self, mean_seconds: float, most_kills: int | None, seed: int, known: set[int]) -> None:
        self.seen: set[int] = set()
        self.num_kills = 0
        self._known = known
        """Children of ours that somebody else waits for."""
        self._mean, self._most, self._draw = mean_seconds, most_kills, random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        next_kill = time.monotonic() + self._mean
        while not self._stop.wait(0.2):
            below = processes.descendants(os.getpid())
            self.seen.update(below)
            self.reap()
            if time.monotonic() < next_kill or (self._most is not None and self.num_kills >= self._most):
                continue
            workers = [pid for pid in below if WORKER in command(pid)]
            # Also where there is no worker: a kill that waited for one would meet every worker at its birth.
            next_kill = time.monotonic() + self._draw.expovariate(1 / self._mean)
            if workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._draw.choice(workers), signal.SIGKILL)
                    self.num_kills += 1

    def reap(self) -> None:
        """Let orphans that we inherited and that have ended go."""
        for pid in processes.children(os.getpid()):
            if pid not in self._known:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def host_state(device: str) -> dict[str, Any]:
    """What could be left on this host outside of any process."""
    groups = host_groups()
    folders = {parent for parent in (groups.unified, groups.memory, groups.pids, groups.freezer) if parent is not None}
    state: dict[str, Any] = {
        "shared_memory": {path.name for path in Path("/dev/shm").iterdir()},
        "control_groups": {str(path) for folder in folders for path in folder.glob("dojo-*")},
        "user_ids": set(re.findall(r"@(kerneldojo-uid-\d+)", Path("/proc/net/unix").read_text())),
    }
    if device.startswith("cuda"):
        state["device_memory"] = device_memory()
    return state


def device_memory() -> list[int]:
    """Bytes in use on each GPU."""
    import pynvml

    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    return [int(pynvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in handles]


def left_behind(before: dict[str, Any], device: str, watch: Watch, scratch: Path) -> dict[str, list[str]]:
    """What is there now and was not before; other users of the host are told apart where that can be done."""
    watch.reap()
    now = host_state(device)
    alive = [pid for pid in processes.descendants(os.getpid()) if processes.is_alive(pid)]
    groups = [name for name in now["control_groups"] - before["control_groups"] if _is_ours(name, watch.seen)]
    found = {
        "processes": [f"{pid}: {command(pid).replace(bytes(1), b' ').decode(errors='replace')[:120]}" for pid in alive],
        "shared_memory": sorted(now["shared_memory"] - before["shared_memory"]),
        "control_groups": sorted(groups),
        # A user id is a socket's name: with no process of ours left, those that are held are others'.
        "user_ids": sorted(now["user_ids"] - before["user_ids"]) if alive else [],
        "temporary_files": sorted(str(path.relative_to(scratch)) for path in scratch.rglob("*"))[:50],
    }
    if "device_memory" in now:
        pairs = enumerate(zip(before["device_memory"], now["device_memory"], strict=True))
        grown = [f"GPU {index}: {new - old} bytes" for index, (old, new) in pairs if new - old > DEVICE_MEMORY_SLACK]
        found["device_memory"] = grown
    return found


def _is_ours(group: str, seen: set[int]) -> bool:
    number = re.search(r"-(\d+)$", group)
    return number is None or int(number[1]) in seen


def verdicts(rows: list[dict[str, Any]], out: Path) -> dict[str, Any]:
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
        "verdicts": len(records),
        "lost": sorted(set(expected) - set(records) - faults),
        "faults_of_ours": sorted(faults),
        "foreign": sorted(set(records) - set(expected)),
        "statuses": {kind: dict(counts.most_common()) for kind, counts in statuses.items()},
        "convicted": dict(convicted),
        "unexpected": dict(unexpected.most_common(40)),
    }


def start_service(arguments: argparse.Namespace, out: Path, environment: dict[str, str]) -> tuple[Any, str]:
    command_line = [sys.executable, "-m", "kerneldojo.cli", "serve", "--port", "0", "--device", arguments.device]
    log = out / "service.log"
    process = subprocess.Popen(
        [*command_line, "--store", str(out / "store.db")], env=environment, stderr=log.open("w"), cwd=out
    )
    until = time.monotonic() + 180
    while not (found := re.search(r"serving on (http://\S+)", log.read_text())):
        if process.poll() is not None or time.monotonic() > until:
            sys.exit(f"the service did not start: {log.read_text()[-500:]}")
        time.sleep(0.2)
    return process, found[1]


def soak(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run it all; the report."""
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    if (out / RESULTS).exists():
        sys.exit(f"{out} holds the results of an earlier soak: choose another --out")
    on_gpu = arguments.device.startswith(("cuda", "auto"))
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
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that what is below ends with us.
    started = time.monotonic()
    known: set[int] = set()
    watch = Watch(arguments.kill_every, arguments.kills, arguments.seed, known)
    service, report = None, {}
    try:
        options = ["--device", arguments.device, "--protocol", arguments.protocol, "--timeout", str(arguments.timeout)]
        options += ["--slots", str(arguments.slots)] if arguments.slots else []
        if arguments.through == "service":
            service, url = start_service(arguments, out, environment)
            known.add(service.pid)
            options += ["--url", url]
        child = subprocess.Popen([sys.executable, __file__, "--child", "--out", str(out), *options], env=environment)
        known.add(child.pid)
        while child.poll() is None:
            time.sleep(1.0)
            if time.monotonic() - report.get("told", 0) > 30:
                report["told"] = time.monotonic()
                count = (out / RESULTS).read_bytes().count(b"\n") if (out / RESULTS).exists() else 0
                span = time.monotonic() - started
                print(
                    f"{count}/{num} after {span:.0f} s, {watch.num_kills} workers killed", file=sys.stderr, flush=True
                )
        codes = {"child": child.returncode}
        if service is not None:
            service.send_signal(signal.SIGTERM)
            codes["service"] = service.wait(120)
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
    found = verdicts(rows, out)
    inside = json.loads((out / "child.json").read_text()) if (out / "child.json").exists() else {}
    return {
        "device": arguments.device,
        "through": arguments.through,
        "protocol": arguments.protocol,
        "seed": arguments.seed,
        "seconds": round(seconds, 1),
        "per_minute": round(60 * found["verdicts"] / seconds, 1),
        "load_average": os.getloadavg()[0],
        "workers_killed": watch.num_kills,
        "exit_codes": codes,
        **found,
        "left_behind": {**left, **inside},
    }


def is_clean(report: dict[str, Any]) -> bool:
    """Whether nothing was lost and nothing left."""
    left = {name: what for name, what in report["left_behind"].items() if name != "most"}
    ended = {"descriptors_left", "threads_left"} <= set(left) and not any(report["exit_codes"].values())
    return ended and not (report["lost"] or report["foreign"] or any(left.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="model:h100")
    parser.add_argument("--num", type=int, help="candidates; 10,000 by default, 2,000 on a GPU")
    parser.add_argument("--hostile", type=float, default=0.2, help="share of hostile candidates")
    parser.add_argument("--skip", default="", help="pattern of hostile candidates to leave out")
    parser.add_argument("--kill-every", type=float, default=10.0, help="mean seconds between kills")
    parser.add_argument("--kills", type=int, help="at most so many")
    parser.add_argument("--through", choices=["pool", "service"], default="pool")
    parser.add_argument("--protocol", default="standard")
    parser.add_argument("--timeout", type=float, default=20.0, help="seconds that a candidate has")
    parser.add_argument("--slots", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for items, results and report.json")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        judge_rows(arguments)
        return
    arguments.out = (arguments.out or Path(tempfile.mkdtemp(prefix="dojo-soak-"))).resolve()
    report = soak(arguments)
    text = json.dumps(report, indent=1)
    (arguments.out / "report.json").write_text(text + "\n")
    print(text)
    sys.exit(0 if is_clean(report) else 1)


if __name__ == "__main__":
    main()
