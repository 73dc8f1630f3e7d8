"""Evaluations a minute, where their time goes, and the peers beside it.

    python benchmarks/throughput.py --device cuda --out throughput         # everything, on all GPUs of this machine
    python benchmarks/throughput.py --device cuda --num-verdicts 1 2 4 8   # several verdicts at once on each GPU
    python benchmarks/throughput.py --only triton --num-verdicts 4 --reuse --pace old new old new --steady 10
    python benchmarks/throughput.py --device model:h100 --num 8            # small sizes, to see that it works
    python benchmarks/throughput.py --device cuda --kernelbench KB --kernelgym KG   # checkouts of the peers

Judged are distinct correct kernels (no two have one binary) on the ten problems of `benchmarks/cases.py`, 20 each, with
the protocol `standard`: 5 rounds, at least 100 timed trials, profile on. Each verdict has fresh isolated processes for
the candidate; nothing is cached: no verdict, no compiled kernel, no reference time (but with `--reuse`). What is kept
between verdicts are the audits of the problems, fork servers and reference runners, which never see a candidate; they
are there before the clock starts (the first verdicts, on other kernels, are not counted).

Sections, each printed as it is done and written to `OUT/throughput.json` at once: `distinct` (binaries compared),
`floor` (fresh CUDA contexts a minute, so many processes at once, and nothing else; by torch, by the bare driver, and
with fewer hardware queues, on one GPU and on all), `disturbance` (a fixed kernel, timed while another process makes and
destroys contexts all the time, and while it does not), `triton` (for 1, 2, 4 ... GPUs and each number of verdicts at
once), `cuda` (load_inline candidates), `kernelbench` and `kernelgym` where checkouts are named. Without a GPU, `floor`
and `disturbance` run with forks in place of contexts, to see that they do. The peers judge the same candidates one
after the other on one GPU with the same numbers of rounds and trials; KernelBench has no profile.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import platform
import statistics
import sys
import time
from collections import Counter
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).parent))

from cases import Case, cases
from processors import machine, process
from throughput_peers import kernelbench, kernelgym
from throughput_probes import distinct, disturbance, floor

from kerneldojo.pool import LocalPool, PoolConfig
from kerneldojo.schema import Evaluation, Job, Status
from kerneldojo.schema.pace import ONE_AT_A_TIME as OLD
from kerneldojo.schema.pace import Pace

NEW = Pace()
PACES = {
    "new": NEW,
    "old": OLD,
    "row": OLD.model_copy(update={"windows_in_a_row": NEW.windows_in_a_row}),
    "brisk": OLD.model_copy(update={"brisk_rounds": True}),
    "beside": OLD.model_copy(update={"profile_beside": True}),
    "apart": NEW.model_copy(update={"contexts_ahead": 0}),
    "recycle": OLD.model_copy(update={"recycle_memory": True}),
}
"""How windows follow each other: as the pool has it, without any of `schema.pace`, with one change alone, and with
contexts that are made as they are needed, apart from windows."""
STEADY = "softmax"
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


def steady_jobs(chosen: list[Case], num: int, device: str) -> list[Job]:
    """One kernel so many times, judged anew each time: how far its figures lie apart is how steady they are."""
    if not num:
        return []
    case = next(case for case in chosen if case.problem.name.startswith(STEADY))
    return [
        Job(problem=case.problem, candidate=case.candidate(WARM_NUMBERS - 1, "triton"), device=device, fresh=True)
        for _ in range(num)
    ]


def among(jobs: list[Job], others: list[Job]) -> list[Job]:
    """`others` spread evenly among `jobs`."""
    places = [(index + 0.5) * len(jobs) / max(1, len(others)) for index in range(len(others))]
    ranked = [*enumerate(jobs), *zip(places, others, strict=True)]
    return [job for _, job in sorted(ranked, key=lambda pair: pair[0])]


def measure(
    chosen: list[Case],
    names: list[str],
    num: int,
    num_verdicts: int,
    slots: int | None,
    language: Literal["triton", "cuda"],
    *,
    reuse: bool = False,
    pace: str = "new",
    steady: int = 0,
) -> dict[str, Any]:
    """Judge `num` candidates on `names`; rate, stages and what went wrong.

    Args:
        chosen, names, num, num_verdicts, slots, language: see the options of the same names.
        reuse: `PoolConfig.reuse_reference_times`.
        pace: one of `PACES`.
        steady: how often one more kernel is judged among the others.
    """
    config = PoolConfig(
        num_verdicts_per_gpu=num_verdicts,
        remember=0,
        cache_folder=None,
        reuse_reference_times=reuse,
        pace=PACES[pace],
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
        busy, judging = machine().total, worker_seconds()
        device = names[0] if len(names) == 1 else "cuda"
        repeated = steady_jobs(chosen, steady, device)
        jobs = among(candidate_jobs(chosen, num, device, 0, language), repeated)
        num = len(jobs)
        futures = [pool.submit(job) for job in jobs]
        evaluations: list[Evaluation] = []
        for future in as_completed(futures):
            evaluations.append(future.result())
            if len(evaluations) % max(1, num // 10) == 0:
                rate = 60 * len(evaluations) / (time.monotonic() - warmed)
                print(f"  {len(evaluations)}/{num}: {rate:.1f} a minute", file=sys.stderr, flush=True)
        wall = time.monotonic() - warmed
        busy, judging = machine().total - busy, worker_seconds() - judging
    finally:
        pool.close(drain=False)
    return {
        "language": language,
        "devices": names,
        "verdicts_at_once": lanes,
        "reuse_reference_times": reuse,
        "pace": pace,
        "evaluations": num,
        "warm_seconds": round(warmed - started, 2),
        "wall_seconds": round(wall, 2),
        "per_minute": round(60 * num / wall, 1),
        **describe(evaluations, wall * lanes / num),
        **({"steady": steadiness(evaluations, {job.candidate.hash for job in repeated})} if steady else {}),
        "machine_cpu_seconds_a_verdict": round(busy / num, 3),
        "judges_cpu_seconds_a_verdict": round(judging / num, 3),
        "load_average": os.getloadavg()[0],
    }


def describe(evaluations: list[Evaluation], lane_seconds: float) -> dict[str, Any]:
    """What a set of verdicts says of itself; `lane_seconds` is how long each took, seen from outside."""
    names = list(dict.fromkeys(name for found in evaluations for name in found.stage_seconds))
    stages = {name: statistics.mean(found.stage_seconds.get(name, 0.0) for found in evaluations) for name in names}
    total = stages.pop("total", sum(stages.values()))
    held = stages.pop("held", 0.0)  # Within other stages: waiting for windows, one's own or others'.
    stopping, alone = stages.pop("stopping", 0.0), stages.pop("alone", 0.0)
    stops = [found.stage_seconds["stopping"] for found in evaluations if "stopping" in found.stage_seconds]
    wrong = Counter(
        f"{found.status}: {found.message[:160]}" for found in evaluations if found.status is not Status.PASSED
    )
    return {
        "statuses": dict(Counter(found.status.value for found in evaluations)),
        "not_passed": dict(wrong.most_common(10)),
        "notes": dict(Counter(note[:60] for found in evaluations for note in found.notes).most_common(10)),
        "trials": round(statistics.mean(found.timing.num_trials for found in evaluations), 1),
        "with_profile": sum(bool(found.kernels) and found.coverage is not None for found in evaluations),
        "rounds": sorted({found.protocol.num_rounds for found in evaluations}),
        "fewest_trials": min((found.timing.num_trials for found in evaluations), default=0),
        "isolation": sorted({", ".join(found.protocol.isolation) for found in evaluations}),
        "mean_stage_seconds": {name: round(value, 4) for name, value in sorted(stages.items(), key=lambda i: -i[1])},
        "mean_seconds": round(total, 4),
        "mean_seconds_held": round(held, 4),
        "mean_seconds_stopping": round(stopping, 4),
        "mean_seconds_alone": round(alone, 4),
        "handed_over": round(sum(seconds == 0.0 for seconds in stops) / max(1, len(stops)), 3),
        "seconds_outside_of_stages": round(max(0.0, total - sum(stages.values())), 4),
        "seconds_between_verdicts": round(lane_seconds - total, 4),
    }


def steadiness(evaluations: list[Evaluation], hashes: set[str]) -> dict[str, Any]:
    """The figures of one kernel that was judged again and again."""
    found = [one for one in evaluations if one.candidate_hash in hashes and one.timing.median_ms is not None]
    times = sorted(one.timing.median_ms or 0.0 for one in found)
    coverages = sorted(one.coverage for one in found if one.coverage is not None)
    return {
        "verdicts": len(found),
        "kernel_ms": times,
        "lie_apart": round((times[-1] - times[0]) / statistics.median(times), 5) if times else None,
        "coverage": coverages,
        "trials": [one.timing.num_trials for one in found],
    }


def is_precompiling() -> bool:
    """Whether a judge of this machine is still compiling headers for the extensions to come."""
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # It is no process, or ended just now.
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if b"c++-header" in words or any(word.endswith(b"/part.o") for word in words):
                return True
    return False


def worker_seconds() -> float:
    """CPU seconds of the pool's workers themselves, without what they host: all lanes of one share its interpreter."""
    seconds = 0.0
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if b"kerneldojo.pool.worker" in (folder / "cmdline").read_bytes().split(b"\0"):
                seconds += process(int(folder.name)).total
    return seconds


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
    parser.add_argument("--reuse", action="store_true", help="take reference times from earlier verdicts")
    parser.add_argument(
        "--pace", nargs="+", choices=list(PACES), default=["new"], help="how windows follow each other, in turn"
    )
    parser.add_argument("--steady", type=int, default=0, help="how often one softmax is judged among the others")
    parser.add_argument("--until", type=float, default=1e9, help="seconds after which nothing more of `triton` begins")
    parser.add_argument("--gpus", type=int, nargs="+", help="numbers of GPUs for `triton`; by default 1, 2, 4, ... all")
    parser.add_argument("--cores", type=int, help="cores that each GPU has; by default an even share of all")
    parser.add_argument("--slots", type=int, help="verdicts at once on a cpu or model device; one a core by default")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each part of `disturbance`")
    parser.add_argument("--num-contexts", type=int, default=8, help="of `floor`, for each process at once")
    parser.add_argument("--kernelbench", type=Path, help="checkout of KernelBench")
    parser.add_argument("--kernelgym", type=Path, help="checkout of KernelGYM")
    parser.add_argument("--peer-seconds", type=float, default=900.0, help="of each peer at most")
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter with the peers' requirements")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--out", type=Path, default=Path("throughput"))
    arguments = parser.parse_args()
    on_gpu = is_gpu(arguments.device)
    names = gpus(arguments.device)
    if not names:
        parser.error("there is no GPU; name another --device")
    if max(arguments.gpus or [1]) > len(names) or min(arguments.gpus or [1]) < 1:
        parser.error(f"--gpus: there are {len(names)}")
    chosen = cases("full" if on_gpu else "small")
    given = {name: str(value) for name, value in vars(arguments).items()}
    report = Report(arguments.out, given | {"problems": {case.problem.name: case.problem.size for case in chosen}})
    sections(arguments, chosen, names, on_gpu, report)


def sections(arguments: argparse.Namespace, chosen: list[Case], names: list[str], on_gpu: bool, report: Report) -> None:
    """Every section that was asked for and that this machine can do."""
    started = time.monotonic()
    only = set(arguments.only)
    if "distinct" in only:
        report.add("distinct", distinct(chosen, arguments.num, 90))
    if "floor" in only:
        for at_once in (1, 8, 16):
            report.add("floor", floor(arguments.num_contexts * at_once, at_once, "torch" if on_gpu else "cpu"))
        if on_gpu:
            report.add("floor", floor(arguments.num_contexts * 16, 16, "bare"))
            for count in dict.fromkeys([1, len(names)]):
                num = arguments.num_contexts * 16 * count
                report.add("floor", floor(num, 16 * count, "torch", count, CUDA_DEVICE_MAX_CONNECTIONS="1"))
    if "disturbance" in only:
        report.add("disturbance", disturbance(names[0] if on_gpu else "cpu", arguments.seconds))
    if "triton" in only:
        all_cores = sorted(os.sched_getaffinity(0))
        powers = [1 << power for power in range(len(names).bit_length()) if 1 << power <= len(names)]
        for count in arguments.gpus or dict.fromkeys([*powers, len(names)]):
            os.sched_setaffinity(0, all_cores[: count * arguments.cores] if arguments.cores else all_cores)
            for num_verdicts, pace in itertools.product(arguments.num_verdicts if on_gpu else [1], arguments.pace):
                num = arguments.num * count
                at = (chosen, names[:count], num, num_verdicts, arguments.slots)
                if time.monotonic() - started < arguments.until:
                    settings = {"reuse": arguments.reuse, "pace": pace, "steady": arguments.steady}
                    report.add("triton", measure(*at, "triton", **settings))
        os.sched_setaffinity(0, all_cores)
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
            report.add(peer, judge(checkout.resolve(), jobs, arguments.peer_python, arguments.peer_seconds))


if __name__ == "__main__":
    main()
