"""How many verdicts a second, over candidates that nobody has seen before, and where the processor's time goes.

    python benchmarks/verdicts.py --workload chains --protocol quick --threads 2 --seconds 20

Workloads: `chains` are generated elementwise problems of 2 to 6 operations with one fused kernel each, at most 14
programs a launch; `small` are the four small problems of this folder. Each candidate has a constant and a name of its
own, so that no source, binary or verdict can be reused (unless `--repeated`); problems repeat, as in training. The
first verdicts on each problem are not counted: they start the fork servers and audit the problem.

Reported: verdicts a second by the clock and by CPU seconds (what a machine of two idle cores would reach), and CPU
seconds a verdict by process: the judge itself, each fork server, and what it forked (keepers, sandbox and contestants).
Wall-clock figures are worth nothing on a busy machine; CPU seconds are worth something.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import statistics
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from processors import process

from kerneldojo import Candidate, Judge, Problem, Status

HERE = Path(__file__).parent
COUNTING = next(p for p in (Path("/sys/fs/cgroup/cpuacct"), Path("/sys/fs/cgroup")) if p.exists())
OPERATIONS = {
    "torch.relu({x})": "tl.maximum({x}, 0.0)",
    "torch.sigmoid({x})": "tl.sigmoid({x})",
    "{x} * {c}": "{x} * {c}",
    "{x} + {c}": "{x} + {c}",
    "torch.exp(-torch.abs({x}))": "tl.exp(-tl.abs({x}))",
    "{x} * {x}": "{x} * {x}",
    "torch.abs({x})": "tl.abs({x})",
    "torch.tanh({x})": "2.0 * tl.sigmoid(2.0 * {x}) - 1.0",
}
"""What torch writes, and what a kernel writes for it."""


@dataclass(frozen=True)
class Case:
    """A problem, and a kernel for it with a place for what makes each copy distinct."""

    problem: Problem
    kernel: str

    def candidate(self, number: int) -> Candidate:
        """A candidate that differs from all others in a constant of its kernel."""
        return Candidate(source=self.kernel.replace("UNIQUE", str(1000 + number)))


def chain(seed: int) -> Case:
    """A generated elementwise problem with a fused kernel; at most 14 programs a launch."""
    draw = random.Random(seed)
    rows, columns = draw.choice([(4, 1024), (14, 512), (7, 1024), (12, 640)])
    steps = [(draw.choice(list(OPERATIONS.items())), draw.uniform(0.5, 1.5)) for _ in range(draw.randint(2, 6))]
    torch_lines = "\n".join(f"        x = {ours.format(x='x', c=round(c, 3))}" for (ours, _), c in steps)
    triton_lines = "\n".join(f"    x = {theirs.format(x='x', c=round(c, 3))}" for (_, theirs), c in steps)
    problem = f"""
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
{torch_lines}
        return x

def get_inputs():
    return [torch.randn({rows}, {columns})]

def get_init_inputs():
    return []
"""
    kernel = f"""
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def chain_UNIQUE(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < tl.where(n == -UNIQUE, 0, n)
    x = tl.load(x_ptr + offsets, mask=mask)
{triton_lines}
    tl.store(out_ptr + offsets, x, mask=mask)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        chain_UNIQUE[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
        return out
"""
    return Case(Problem(name=f"chain-{seed}", source=problem), kernel)


def small(name: str) -> Case:
    """A problem of this folder."""
    problem = Problem(name=name, source=(HERE / "small" / f"{name}_problem.py").read_text())
    return Case(problem, (HERE / "small" / f"{name}.py").read_text())


def cases(workload: str) -> list[Case]:
    """The problems of a workload; some chains are degenerate (constant), and left out by the first verdict."""
    if workload == "chains":
        return [chain(seed) for seed in range(8)]
    return [small(name) for name in ("elementwise", "softmax", "product", "attention")]


class Accounts:
    """CPU seconds of this process, its fork servers, and whatever they fork.

    What a killed PID namespace has used is told to nobody's parent, so each fork server is put into a control group of
    its own that counts (version 1's `cpuacct`, or version 2's `cpu.stat`, as root).
    """

    def __init__(self) -> None:
        self._folders: dict[str, tuple[Path, str]] = {}
        for flavour, pid in self._servers().items():
            folder = COUNTING / f"dojo-benchmark-{os.getpid()}-{flavour}"
            folder.mkdir()
            for task in [pid, *self._below(pid)]:
                with contextlib.suppress(ProcessLookupError):
                    (folder / "cgroup.procs").write_text(task)
            self._folders[flavour] = folder, pid
        self.before = self._now()

    @staticmethod
    def _children(pid: str) -> list[str]:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return [child for task in tasks for child in (task / "children").read_text().split()]

    def _below(self, pid: str) -> list[str]:
        return [found for child in self._children(pid) for found in (child, *self._below(child))]

    def _servers(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for pid in self._children("self"):
            command = Path(f"/proc/{pid}/cmdline").read_text()
            found |= {flavour: pid for flavour in ("interpret", "compile") if f"main('{flavour}'" in command}
        return found

    def _now(self) -> dict[str, float]:
        mine = os.times()
        found = {"judge": mine.user + mine.system}
        for flavour, (folder, pid) in self._folders.items():
            own = process(pid).total
            found[f"{flavour} server"] = own
            found[f"{flavour} forks"] = _group_seconds(folder) - own
        return found

    def spent(self) -> dict[str, float]:
        """Seconds since this object was made."""
        now = self._now()
        return {name: now[name] - self.before[name] for name in now}

    def close(self) -> None:
        """Remove the groups; their processes must have ended."""
        for folder, _ in self._folders.values():
            folder.rmdir()


def _group_seconds(folder: Path) -> float:
    if (folder / "cpuacct.usage").exists():
        return int((folder / "cpuacct.usage").read_text()) / 1e9
    return int((folder / "cpu.stat").read_text().split()[1]) / 1e6


def measure(
    workload: str, device: str, protocol: str, threads: int, seconds: float, repeated: bool, salt: int
) -> dict[str, Any]:
    """Judge for `seconds` in this process, some threads at once."""
    numbers = itertools.repeat(salt) if repeated else itertools.count(salt * 1_000_000)
    stages: list[dict[str, float]] = []
    with Judge() as judge:
        usable: list[Case] = []
        for case in cases(workload):
            for _ in range(2):
                evaluation = judge.judge(
                    case.problem, case.candidate(next(numbers)), device=device, protocol_name=protocol
                )
            if evaluation.status is Status.PASSED:
                usable.append(case)
            elif evaluation.status is not Status.INVALID_PROBLEM:
                sys.exit(f"{case.problem.name}: {evaluation.status}: {evaluation.message}")
        accounts, started = Accounts(), time.perf_counter()

        def work(offset: int) -> None:
            for case in itertools.islice(itertools.cycle(usable), offset, None):
                if time.perf_counter() - started > seconds:
                    return
                evaluation = judge.judge(
                    case.problem, case.candidate(next(numbers)), device=device, protocol_name=protocol
                )
                if evaluation.status is not Status.PASSED:
                    raise RuntimeError(f"{case.problem.name}: {evaluation.status}: {evaluation.message}")
                stages.append(evaluation.stage_seconds)

        workers = [threading.Thread(target=work, args=(offset,)) for offset in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        found = {"wall": time.perf_counter() - started, "cpu": accounts.spent(), "stages": stages}
    accounts.close()
    return found


def summary(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures of all processes together."""
    stages = [stage for part in parts for stage in part["stages"]]
    cpu: Counter[str] = Counter()
    for part in parts:
        cpu.update(part["cpu"])
    names = list(dict.fromkeys(name for stage in stages for name in stage))
    return {
        "verdicts": len(stages),
        "verdicts_per_second": round(sum(len(part["stages"]) / part["wall"] for part in parts), 2),
        "verdicts_per_2_cpu_seconds": round(2 * len(stages) / sum(cpu.values()), 2),
        "cpu_ms_per_verdict": {name: round(1e3 * value / len(stages), 1) for name, value in cpu.items()},
        "cpu_ms_total": round(1e3 * sum(cpu.values()) / len(stages), 1),
        "stage_ms_median": {n: round(1e3 * statistics.median(s.get(n, 0.0) for s in stages), 1) for n in names},
    }


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=["chains", "small"], default="chains")
    parser.add_argument("--device", default="model:h100")
    parser.add_argument("--protocol", default="quick")
    parser.add_argument("--threads", type=int, default=1, help="verdicts at once in one process")
    parser.add_argument("--processes", type=int, default=1, help="judges, each with fork servers of its own")
    parser.add_argument("--repeated", action="store_true", help="the same candidate for each problem, judged afresh")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    fixed = (arguments.workload, arguments.device, arguments.protocol, arguments.threads, arguments.seconds)
    fixed = (*fixed, arguments.repeated)
    if arguments.processes == 1:
        parts = [measure(*fixed, 0)]
    else:
        with ProcessPoolExecutor(arguments.processes) as pool:
            parts = [
                future.result() for future in [pool.submit(measure, *fixed, i) for i in range(arguments.processes)]
            ]
    names = ("workload", "device", "protocol", "threads", "processes", "repeated")
    text = json.dumps({name: getattr(arguments, name) for name in names} | summary(parts), indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
