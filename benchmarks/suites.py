"""How many verdicts a minute on the problems that users bring, at their own sizes.

    python benchmarks/suites.py kernelbench:KernelBench:1 --device cuda:0 --at-once 8 --num 30 --samples 4 --out suites

`throughput.py` has ten problems that fit beside each other. Those of KernelBench hold up to 16 GiB, and what does not
fit its share of a GPU is judged alone. Told are the rate, and for each problem how long its verdicts took, which of
them had company, and where the time went.

Every problem has the same kind of candidate, made of its reference: it computes as that does, and a Triton kernel of
its own, of which no two are alike, copies the answer out. So it is right wherever the reference is, is not quick, and
says nothing about anybody's kernels. Its samples come in a row, as reinforcement learning asks for them.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import time
from collections import Counter
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

from kerneldojo.pool import LocalPool, PoolConfig
from kerneldojo.problems.suite import load_suite
from kerneldojo.schema import Candidate, Evaluation, Job, Problem
from kerneldojo.schema.pace import Pace

COPY = """

import triton
import triton.language as tl


@triton.jit
def copy_out_{number}(source, target, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at, mask=at < count) + 0 * {number}, mask=at < count)


def copied(value):
    if isinstance(value, (tuple, list)):
        return type(value)(copied(one) for one in value)
    if not isinstance(value, torch.Tensor) or not value.numel():
        return value
    value = value.contiguous()
    target = torch.empty_like(value)
    copy_out_{number}[(triton.cdiv(value.numel(), 4096),)](value, target, value.numel(), BLOCK=4096)
    return target


class ModelNew(Model):
    def forward(self, *inputs):
        return copied(super().forward(*inputs))
"""


def candidate(problem: Problem, number: int) -> Candidate:
    """The reference with a copy at its end; no two numbers make the same machine code."""
    return Candidate(source=f"import torch\n{problem.source}{COPY.format(number=number)}")


def spread(problems: list[Problem], num: int) -> list[Problem]:
    """So many of them, evenly."""
    num = min(num, len(problems))
    return [problems[index * len(problems) // num] for index in range(num)]


def judged(pool: LocalPool, problems: list[Problem], device: str, samples: int, seconds: float) -> list[dict[str, Any]]:
    """One row a verdict, in the order in which they came; those that did not come in time are left out."""
    jobs = {
        pool.submit(
            Job(
                problem=problem,
                candidate=candidate(problem, 1000 * place + sample),
                device=device,
                allow_degenerate=True,
                fresh=True,
            )
        ): (problem, sample)
        for place, problem in enumerate(problems)
        for sample in range(samples)
    }
    began, rows = time.monotonic(), list[dict[str, Any]]()
    try:
        for future in as_completed(jobs, timeout=seconds):
            problem, sample = jobs[future]
            at = round(time.monotonic() - began, 2)
            rows.append({"at": at, "sample": sample, **row(problem, future.result())})
            told = ("at", "problem", "sample", "status", "seconds", "had_company", "message")
            print(json.dumps({key: rows[-1][key] for key in told}), flush=True)
    except TimeoutError:
        print(f"{len(rows)} of {len(jobs)} in {seconds:.0f} s", file=sys.stderr, flush=True)
    return rows


def row(problem: Problem, found: Evaluation) -> dict[str, Any]:
    """What is told of one verdict."""
    stages = dict(found.stage_seconds)
    return {
        "problem": f"{problem.level}/{problem.name}",
        "status": found.status.value,
        "message": found.message[:120] if found.status.value != "passed" else "",
        "seconds": stages.pop("total", 0.0),
        "had_company": "held" in stages,
        "stages": stages,
        "kernel_ms": found.timing.median_ms if found.timing else None,
    }


def described(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The rate until the last verdict, and the mean of each stage, of those with company and of those without."""
    span = rows[-1]["at"] if rows else 0.0
    found: dict[str, Any] = {
        "verdicts": len(rows),
        "per_minute": round(60 * len(rows) / span, 1) if span else 0.0,
        "statuses": dict(Counter(one["status"] for one in rows)),
    }
    for name, had_company in (("with company", True), ("alone", False)):
        some = [one for one in rows if one["had_company"] is had_company]
        names = dict.fromkeys(stage for one in some for stage in one["stages"])
        found[name] = {
            "verdicts": len(some),
            "problems": len({one["problem"] for one in some}),
            "mean_seconds": round(statistics.mean(one["seconds"] for one in some), 2) if some else None,
            "mean_stage_seconds": {
                stage: round(statistics.mean(one["stages"].get(stage, 0.0) for one in some), 3) for stage in names
            },
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", help="as dojo names suites: kernelbench:FOLDER:LEVEL, katas, ...")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--at-once", type=int, help="verdicts at once; by default the pool's own number")
    parser.add_argument("--size", choices=["full", "small"], default="full", help="of our own problems")
    parser.add_argument("--num", type=int, default=20, help="problems, evenly spread over the suite")
    parser.add_argument("--samples", type=int, default=4, help="candidates of each")
    parser.add_argument(
        "--larger-shares",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="judge what needs more than a share beside others, as long as it fits",
    )
    parser.add_argument("--seconds", type=float, default=500.0, help="after which it ends")
    parser.add_argument("--out", type=Path, default=Path("suites"))
    arguments = parser.parse_args()
    problems = spread(load_suite(arguments.suite, arguments.size), arguments.num)
    pace = Pace(larger_shares=arguments.larger_shares)
    pool = LocalPool(
        [arguments.device], None, PoolConfig(num_verdicts_per_gpu=arguments.at_once, remember=0, pace=pace)
    )
    try:
        rows = judged(pool, problems, arguments.device, arguments.samples, arguments.seconds)
        told = {"suite": re.sub(r".*/", "", arguments.suite), "at_once": arguments.at_once, "pace": pace.model_dump()}
        write(arguments.out, told | described(rows), rows)  # Before what is under way has come to its end.
    finally:
        pool.close(drain=False)


def write(out: Path, found: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Keep all of it, and print what is not told verdict by verdict."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "suites.json").write_text(json.dumps(found | {"rows": rows}, indent=1) + "\n")
    print(json.dumps(found, indent=1), flush=True)


if __name__ == "__main__":
    main()
