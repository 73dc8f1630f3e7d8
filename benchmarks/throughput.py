"""Evaluations a minute, where their time goes, and the peers beside it.

    python benchmarks/throughput.py --device cuda --out throughput         # everything, on all GPUs of this machine
    python benchmarks/throughput.py --device cuda --num-verdicts 1 2 4 8   # several verdicts at once on each GPU
    python benchmarks/throughput.py --device model:h100 --num 8            # small sizes, to see that it works
    python benchmarks/throughput.py --device cuda --kernelbench KB --kernelgym KG   # checkouts of the peers

Judged are distinct correct kernels (no two have one binary) on the ten problems of `benchmarks/cases.py`, 20 each, with
the protocol `standard`: 5 rounds, at least 100 timed trials, profile on. Each verdict has fresh isolated processes for
the candidate; nothing is cached: no verdict, no compiled kernel, no reference time. What is kept between verdicts are
the audits of the problems, fork servers and reference runners, which never see a candidate; they are there before the
clock starts (the first verdicts, on other kernels, are not counted).

Sections, each printed as it is done and written to `OUT/throughput.json` at once: `distinct` (binaries compared),
`floor` (fresh CUDA contexts a minute, so many processes at once, and nothing else; by torch, by the bare driver, and
with fewer hardware queues), `disturbance` (a fixed kernel, timed while another process makes and destroys contexts all
the time, and while it does not), `triton` (for 1, 2, 4 ... GPUs and each number of verdicts at once), `cuda`
(load_inline candidates), `kernelbench` and `kernelgym` where checkouts are named. Without a GPU, `floor` and
`disturbance` run with forks in place of contexts, to see that they do. The peers judge the same candidates one after
the other on one GPU with the same numbers of rounds and trials; KernelBench has no profile.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).parent))

from cases import Case, cases

from kerneldojo.pool import LocalPool, PoolConfig
from kerneldojo.schema import Evaluation, Job, Status

HERE = Path(__file__).parent
NUM_ROUNDS, NUM_TRIALS = 5, 100
"""Of the protocol `standard`, for the peers."""
SECTIONS = ("distinct", "floor", "disturbance", "triton", "cuda", "kernelbench", "kernelgym")
WARM_NUMBERS = 50_000
"""Numbers of candidates that are judged before the clock starts; never those of counted ones."""


def is_gpu(device: str) -> bool:
    return device.startswith("cuda")


def gpus(device: str) -> list[str]:
    """Names of the GPUs that `device` stands for."""
    from kerneldojo import devices

    return [f"cuda:{index}" for index in range(devices.num_cuda_devices())] if device == "cuda" else [device]


def candidate_jobs(
    chosen: list[Case], num: int, device: str, first: int, language: Literal["triton", "cuda"]
) -> list[Job]:
    """`num` distinct candidates, the problems in turn; asked afresh, so that no verdict is another's."""
    return [
        Job(
            problem=chosen[number % len(chosen)].problem,
            candidate=chosen[number % len(chosen)].candidate(first + number, language),
            device=device,
            fresh=True,
        )
        for number in range(num)
    ]


def measure(
    chosen: list[Case],
    names: list[str],
    num: int,
    num_verdicts: int,
    slots: int | None,
    language: Literal["triton", "cuda"],
    *,
    beside: bool = False,
) -> dict[str, Any]:
    """Judge `num` candidates on `names`; rate, stages and what went wrong."""
    config = PoolConfig(
        num_verdicts_per_gpu=num_verdicts,
        remember=0,
        cache_folder=None,
        reuse_reference_times=False,
        contexts_beside_windows=beside,
    )
    started = time.monotonic()
    pool = LocalPool(names, slots, config)
    try:
        lanes = pool.num_slots
        warm = [
            job
            for place, name in enumerate(names)
            for job in candidate_jobs(chosen, len(chosen), name, WARM_NUMBERS + 1000 * place, language)
        ]
        for future in [pool.submit(job) for job in warm]:
            future.result()
        while language == "cuda" and is_precompiling():  # What a judge makes once, and not for every candidate.
            time.sleep(0.5)
        warmed = time.monotonic()
        busy = machine_seconds()
        device = names[0] if len(names) == 1 else "cuda"
        futures = [pool.submit(job) for job in candidate_jobs(chosen, num, device, 0, language)]
        evaluations: list[Evaluation] = []
        for future in as_completed(futures):
            evaluations.append(future.result())
            if len(evaluations) % max(1, num // 10) == 0:
                rate = 60 * len(evaluations) / (time.monotonic() - warmed)
                print(f"  {len(evaluations)}/{num}: {rate:.1f} a minute", file=sys.stderr, flush=True)
        wall = time.monotonic() - warmed
        busy = machine_seconds() - busy
    finally:
        pool.close(drain=False)
    return {
        "language": language,
        "devices": names,
        "verdicts_at_once": lanes,
        "contexts_beside_windows": beside,
        "evaluations": num,
        "warm_seconds": round(warmed - started, 2),
        "wall_seconds": round(wall, 2),
        "per_minute": round(60 * num / wall, 1),
        **describe(evaluations, wall * lanes / num),
        "machine_cpu_seconds_a_verdict": round(busy / num, 3),
        "load_average": os.getloadavg()[0],
    }


def describe(evaluations: list[Evaluation], lane_seconds: float) -> dict[str, Any]:
    """What a set of verdicts says of itself; `lane_seconds` is how long each took, seen from outside."""
    names = list(dict.fromkeys(name for found in evaluations for name in found.stage_seconds))
    stages = {name: statistics.mean(found.stage_seconds.get(name, 0.0) for found in evaluations) for name in names}
    total = stages.pop("total", sum(stages.values()))
    held = stages.pop("held", 0.0)  # Within other stages: waiting for windows, one's own or others'.
    wrong = Counter(
        f"{found.status}: {found.message[:160]}" for found in evaluations if found.status is not Status.PASSED
    )
    return {
        "statuses": dict(Counter(found.status.value for found in evaluations)),
        "not_passed": dict(wrong.most_common(10)),
        "with_profile": sum(bool(found.kernels) and found.coverage is not None for found in evaluations),
        "rounds": sorted({found.protocol.num_rounds for found in evaluations}),
        "fewest_trials": min((found.timing.num_trials for found in evaluations), default=0),
        "isolation": sorted({", ".join(found.protocol.isolation) for found in evaluations}),
        "mean_stage_seconds": {name: round(value, 4) for name, value in sorted(stages.items(), key=lambda i: -i[1])},
        "mean_seconds": round(total, 4),
        "mean_seconds_held": round(held, 4),
        "seconds_outside_of_stages": round(max(0.0, total - sum(stages.values())), 4),
        "seconds_between_verdicts": round(lane_seconds - total, 4),
    }


def is_precompiling() -> bool:
    """Whether a judge of this machine is still compiling headers for the extensions to come."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # It ended just now.
            words = path.read_bytes().split(b"\0")
            if b"c++-header" in words or any(word.endswith(b"/part.o") for word in words):
                return True
    return False


def machine_seconds() -> float:
    """CPU seconds that all of this machine's processes have used: an upper bound for ours if we are not alone."""
    fields = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


# What is measured in processes of their own: this one must never hold a context.

DISTINCT = """
import hashlib, importlib.util, json, sys, tempfile
from pathlib import Path
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

hashes = []
with tempfile.TemporaryDirectory() as folder:
    for number, row in enumerate(json.load(sys.stdin)):
        path = Path(folder) / f"candidate_{number}.py"
        path.write_text(row["source"])
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        kernel = next(value for value in vars(module).values() if isinstance(value, triton.JITFunction))
        source = ASTSource(kernel, row["signature"], {"BLOCK": row["block"]})
        compiled = triton.compile(source, target=GPUTarget("cuda", int(sys.argv[1]), 32))
        hashes.append(hashlib.sha256(compiled.asm["cubin"]).hexdigest())
print(json.dumps({"compiled": len(hashes), "distinct": len(set(hashes)), "target": f"sm_{sys.argv[1]}"}))
"""
FLOOR = """
import ctypes, json, os, sys, time
import torch
num, at_once, how = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

def open_device():
    if how == "bare":
        cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
        if cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0):
            os._exit(1)
        return
    torch.zeros(1, device="cpu" if how == "cpu" else "cuda:0").item()

started, running, failed = time.perf_counter(), 0, 0
for number in range(num + at_once):
    if number >= at_once and running:
        failed += os.wait()[1] != 0
        running -= 1
    if number < num:
        running += 1
        if os.fork() == 0:
            open_device()
            os._exit(0)
while running:
    failed += os.wait()[1] != 0
    running -= 1
print(json.dumps({"how": how, "at_once": at_once, "contexts": num, "failed": failed,
                  "per_minute": round(60 * num / (time.perf_counter() - started), 1)}))
"""
CHURN = """
import os, sys
import torch
at_once, device, running, count, owner = int(sys.argv[1]), sys.argv[2], 0, 0, os.getppid()
while os.getppid() == owner:
    while running < at_once:
        running += 1
        if os.fork() == 0:
            torch.zeros(1, device=device).item()
            os._exit(0)
    os.wait()
    running, count = running - 1, count + 1
    print(count, flush=True)
"""
DISTURBANCE = """
import json, statistics, subprocess, sys, time
import torch
churn, device, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
values = torch.randn((1 << 24) if device != "cpu" else (1 << 14), device=device)
wait = torch.cuda.synchronize if device != "cpu" else (lambda: None)

def windows(seconds, length=40):
    # Microseconds a call of windows of so many calls, as the judge's clock reads them.
    found, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until:
        wait()
        begun = time.perf_counter_ns()
        for _ in range(length):
            torch.sigmoid(values)
        wait()
        found.append((time.perf_counter_ns() - begun) / 1000 / length)
    return found

def described(found):
    # A verdict's figure is the middle of some 25 windows: so that is what must not move.
    groups = [statistics.median(found[at:at + 25]) for at in range(0, max(1, len(found) - 24), 25)]
    ordered, middle = sorted(found), statistics.median(found)
    return {"windows": len(found), "median_us": round(middle, 3), "p95_us": round(ordered[int(0.95 * len(found))], 3),
            "worst_us": round(ordered[-1], 3), "figures": len(groups),
            "spread_of_figures": round((max(groups) - min(groups)) / middle, 5)}

windows(min(0.5, seconds))
quiet, told = windows(seconds), {}
for at_once in (1, 4):
    process = subprocess.Popen([sys.executable, "-c", churn, str(at_once), device], stdout=subprocess.PIPE)
    process.stdout.readline()  # It has made its first, so its imports are done.
    found = windows(seconds)
    process.terminate()
    made = len(process.stdout.read().split())
    process.wait()
    told[at_once] = described(found) | {"contexts_meanwhile": made}
again = described(quiet + windows(seconds))
shifts = {at_once: round(found["median_us"] / again["median_us"] - 1, 5) for at_once, found in told.items()}
print(json.dumps({"device": device, "quiet": again, "disturbed": told, "shift_of_median": shifts,
                  "harmless": all(abs(shift) < 0.01 for shift in shifts.values())
                  and all(found["spread_of_figures"] < again["spread_of_figures"] + 0.01 for found in told.values())}))
"""
"""`harmless` says whether `PoolConfig.contexts_beside_windows` may be set on such a machine."""


def distinct(chosen: list[Case], num: int, target: int) -> dict[str, Any]:
    """Compile every candidate's kernel without running it, and count different binaries."""
    rows = [
        {
            "source": chosen[number % len(chosen)].candidate(number).source,
            "signature": chosen[number % len(chosen)].signature,
            "block": 64 if chosen[number % len(chosen)].problem.name == "product" else 1024,
        }
        for number in range(num)
    ]
    return child([sys.executable, "-c", DISTINCT, str(target)], json.dumps(rows))


def floor(num: int, at_once: int, how: str, **environment: str) -> dict[str, Any]:
    """Fresh CUDA contexts a minute, in forks of a process that has imported torch."""
    return child([sys.executable, "-c", FLOOR, str(num), str(at_once), how], **environment) | environment


def disturbance(device: str, seconds: float) -> dict[str, Any]:
    """A fixed kernel's time with and without another process that makes and destroys contexts."""
    return child([sys.executable, "-c", DISTURBANCE, CHURN, device, str(seconds)])


def child(command: list[str], given: str = "", **extra: str) -> dict[str, Any]:
    """Run a command that prints one JSON object last; what goes wrong becomes `error`."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "TRITON_CACHE_DIR": cache, **extra}
        done = subprocess.run(command, input=given, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:300]}
    return json.loads(done.stdout.splitlines()[-1])


# The peers.


def kernelbench(checkout: Path, jobs: list[Job], python: str) -> dict[str, Any]:
    """KernelBench's evaluation, a fresh process each."""
    seconds: list[float] = []
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, job in enumerate(jobs):
            problem, kernel = folder / f"problem{number}.py", folder / f"kernel{number}.py"
            problem.write_text(job.problem.source)
            kernel.write_text(job.candidate.source)
            command = [python, str(HERE / "peers" / "kernelbench.py"), str(checkout), str(problem), str(kernel)]
            command += [str(NUM_ROUNDS), str(NUM_TRIALS), job.candidate.language]
            started = time.perf_counter()
            found.append(told(command, folder))
            if found[-1]["correct"]:
                seconds.append(time.perf_counter() - started)
    return peer_summary(seconds, found)


def kernelgym(checkout: Path, jobs: list[Job], python: str) -> dict[str, Any]:
    """KernelGYM's worker pool with its default settings."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [(job.problem.source, job.candidate.source, job.candidate.language) for job in jobs]
        keys = ("problem", "candidate", "backend")
        lines = [json.dumps(dict(zip(keys, row, strict=True))) for row in rows]
        (folder / "tasks.jsonl").write_text("\n".join(lines))
        command = [python, str(HERE / "peers" / "kernelgym.py"), str(checkout), str(folder / "tasks.jsonl")]
        done = run_peer([*command, str(NUM_ROUNDS), str(NUM_TRIALS)], folder)
    found = [json.loads(line[7:]) for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if len(found) < len(jobs):
        found.append({"correct": False, "error": last_line(done)})
    return peer_summary([one["seconds"] for one in found if one["correct"]], found)


def told(command: list[str], folder: Path) -> dict[str, Any]:
    """What a driver printed of one candidate."""
    done = run_peer(command, folder)
    lines = [line[7:] for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return json.loads(lines[-1]) if lines else {"correct": False, "error": last_line(done)}


def run_peer(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a driver with caches of its own, so that nothing compiled earlier helps it."""
    caches = {"TRITON_CACHE_DIR": str(folder / "triton"), "TORCH_EXTENSIONS_DIR": str(folder / "extensions")}
    environment = {**os.environ, **caches}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:300]


def peer_summary(seconds: list[float], found: list[dict[str, Any]]) -> dict[str, Any]:
    """Rate of the evaluations that ended as they should: a failure says nothing of how long one takes."""
    errors = Counter(str(one.get("error", "judged incorrect")) for one in found if not one["correct"])
    summary: dict[str, Any] = {"evaluations": len(found), "correct": len(seconds)}
    if seconds:
        summary |= {"per_minute": round(60 * len(seconds) / sum(seconds), 2), "mean_seconds": statistics.mean(seconds)}
    return summary | {"errors": dict(errors.most_common(5))}


class Report:
    """Prints sections as they come and keeps them on disk."""

    def __init__(self, out: Path, arguments: dict[str, Any]) -> None:
        self._path = out / "throughput.json"
        out.mkdir(parents=True, exist_ok=True)
        machine = {"cores": len(os.sched_getaffinity(0)), "platform": platform.platform()}
        self._found: dict[str, Any] = {"machine": machine, "arguments": arguments}

    def add(self, section: str, found: dict[str, Any]) -> None:
        """One more result of a section."""
        self._found.setdefault(section, []).append(found)
        print(f"{section}: {json.dumps(found, indent=1)}", flush=True)
        temporary = self._path.with_suffix(".part")
        temporary.write_text(json.dumps(self._found, indent=1) + "\n")
        temporary.replace(self._path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda for all GPUs, cuda:N, cpu or model:GPU")
    parser.add_argument("--num", type=int, default=200, help="Triton candidates for each GPU")
    parser.add_argument("--num-cuda", type=int, default=20, help="load_inline candidates")
    parser.add_argument("--num-peers", type=int, default=10, help="candidates that each peer judges")
    parser.add_argument("--num-verdicts", type=int, nargs="+", default=[1], help="verdicts at once on a GPU")
    parser.add_argument(
        "--beside", action="store_true", help="also with contexts that come and go while others are timed"
    )
    parser.add_argument("--slots", type=int, help="verdicts at once on a cpu or model device; one a core by default")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each part of `disturbance`")
    parser.add_argument("--num-contexts", type=int, default=8, help="of `floor`, for each process at once")
    parser.add_argument("--kernelbench", type=Path, help="checkout of KernelBench")
    parser.add_argument("--kernelgym", type=Path, help="checkout of KernelGYM")
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter with the peers' requirements")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--out", type=Path, default=Path("throughput"))
    arguments = parser.parse_args()
    on_gpu = is_gpu(arguments.device)
    names = gpus(arguments.device)
    if not names:
        parser.error("there is no GPU; name another --device")
    chosen = cases("full" if on_gpu else "small")
    given = {name: str(value) for name, value in vars(arguments).items()}
    report = Report(arguments.out, given | {"problems": {case.problem.name: case.problem.size for case in chosen}})
    sections(arguments, chosen, names, on_gpu, report)


def sections(arguments: argparse.Namespace, chosen: list[Case], names: list[str], on_gpu: bool, report: Report) -> None:
    """Every section that was asked for and that this machine can do."""
    only = set(arguments.only)
    if "distinct" in only:
        report.add("distinct", distinct(chosen, arguments.num, 90))
    if "floor" in only:
        for at_once in (1, 8, 16):
            report.add("floor", floor(arguments.num_contexts * at_once, at_once, "torch" if on_gpu else "cpu"))
        if on_gpu:
            report.add("floor", floor(arguments.num_contexts * 16, 16, "bare"))
            report.add("floor", floor(arguments.num_contexts * 16, 16, "torch", CUDA_DEVICE_MAX_CONNECTIONS="1"))
    if "disturbance" in only:
        report.add("disturbance", disturbance(names[0] if on_gpu else "cpu", arguments.seconds))
    if "triton" in only:
        counts = [1 << power for power in range(len(names).bit_length()) if 1 << power <= len(names)]
        for count in dict.fromkeys([*counts, len(names)]):
            for num_verdicts in arguments.num_verdicts if on_gpu else [1]:
                num = arguments.num * count
                for beside in [False, True] if arguments.beside and num_verdicts > 1 else [False]:
                    found = measure(chosen, names[:count], num, num_verdicts, arguments.slots, "triton", beside=beside)
                    report.add("triton", found)
    with_cuda = [case for case in chosen if case.cuda]
    if on_gpu and "cuda" in only:
        for num_verdicts in arguments.num_verdicts:
            report.add("cuda", measure(with_cuda, names[:1], arguments.num_cuda, num_verdicts, None, "cuda"))
    for peer, checkout, judge in (
        ("kernelbench", arguments.kernelbench, kernelbench),
        ("kernelgym", arguments.kernelgym, kernelgym),
    ):
        if checkout is not None and peer in only:
            jobs = candidate_jobs(chosen, arguments.num_peers, names[0], 20_000, "triton")
            report.add(peer, judge(checkout.resolve(), jobs, arguments.peer_python))


if __name__ == "__main__":
    main()
