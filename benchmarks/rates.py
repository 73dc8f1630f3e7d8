"""Verdicts a second on a host device, once warm, as play meets them: through the pool, repeats and all.

    python benchmarks/rates.py [--device model:h100] [--seconds 30] [--out FILE.json]

Three streams of jobs, all under the quick protocol:

- `graphs`: the teacher's mixture over generated graphs; many answers repeat, and equal jobs are judged once;
- `katas`: the teacher's mixture over the small katas of levels 1 and 2, with its repeats;
- `distinct`: one kernel each for the level-1 katas, every source made unique by a comment, nothing cached.

A stream runs once for a few seconds to warm up (fork servers, audits, reference runners), with other samples.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path

from kerneldojo.episodes import PlayConfig, first_episode, job_for
from kerneldojo.policies import Request
from kerneldojo.policies.teacher import Teacher, teach
from kerneldojo.pool import open_pool
from kerneldojo.problems.suite import load_suite
from kerneldojo.schema import Answer, Candidate, Evaluation, Job, Problem

TARGETS = {"graphs": 25.0, "katas": 10.0, "distinct": 2.0}
UNDER_WAY = 32


def mixture(problems: list[Problem], device: str, first: int) -> Iterator[Job]:
    """The teacher's answers, sample after sample."""
    teacher, config = Teacher.of("mixture"), PlayConfig(device=device, protocol="quick")
    for sample in itertools.count(first):
        for problem in problems:
            episode = first_episode(problem, config, sample=sample, seed=7)
            job = job_for(episode, Answer(text=teacher.text(Request(episode=episode, messages=(), seed=episode.seed))))
            if job is not None:
                yield job


def distinct(problems: list[Problem], device: str, first: int) -> Iterator[Job]:
    """Fused kernels, no two sources alike, judged afresh."""
    for number in itertools.count(first):
        for problem in problems:
            source = teach(problem, "fused", 0) + f"\n# {number}\n"
            yield Job(problem=problem, candidate=Candidate(source=source), device=device, protocol="quick", fresh=True)


def run(pool: object, jobs: Iterator[Job], seconds: float) -> dict[str, object]:
    """Keep the pool busy for so long; what is under way then is finished, and counted with its time."""
    submit = pool.submit  # type: ignore[attr-defined]
    waiting: set[Future[Evaluation]] = set()
    seen: set[str] = set()
    statuses: Counter[str] = Counter()
    began = time.perf_counter()
    while True:
        while len(waiting) < UNDER_WAY and time.perf_counter() - began < seconds:
            job = next(jobs)
            seen.add(job.hash)
            waiting.add(submit(job))
        if not waiting:
            break
        done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        statuses.update(one.result().status.value for one in done)
    spent = time.perf_counter() - began
    total = sum(statuses.values())
    return {
        "verdicts": total,
        "distinct_jobs": len(seen),
        "seconds": round(spent, 2),
        "verdicts_per_second": round(total / spent, 2),
        "statuses": dict(statuses),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="model:h100")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--warm-seconds", type=float, default=15.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    graphs = load_suite("graphs:validation", size="small")
    level1 = load_suite("katas:1", size="small")
    katas = level1 + load_suite("katas:2", size="small")
    streams = {"graphs": (mixture, graphs), "katas": (mixture, katas), "distinct": (distinct, level1)}
    results: dict[str, object] = {}
    pool = open_pool("local", [options.device])
    try:
        for name, (stream, problems) in streams.items():
            run(pool, stream(problems, options.device, 1000), options.warm_seconds)
            found = run(pool, stream(problems, options.device, 0), options.seconds)
            results[name] = {**found, "target": TARGETS[name], "load": os.getloadavg()[0]}
            print(f"{name}: {json.dumps(results[name])}", flush=True)
    finally:
        pool.close(drain=False)
    results["machine"] = {"cores": os.cpu_count(), "processor": platform.processor() or platform.machine()}
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
