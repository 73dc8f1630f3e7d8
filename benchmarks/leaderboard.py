"""What models have written and KernelBench has found right: judged here.

    git clone https://github.com/anneouyang/KernelBenchLeaderboard
    python benchmarks/leaderboard.py KernelBenchLeaderboard --device cuda:0 --at-once 12 --out leaderboard

KernelBench's leaderboard of December 2024 keeps some 380 CUDA kernels of seven models (at most five for each problem,
beside the problems as they were), all of which were right by KernelBench's tolerance of one in a hundred, on inputs
from its own distribution. Nobody wrote them for this judge. So each that is refused here is either a mistake of the
model's that was not seen, or one of ours: a line for each says why.

A part of them may be judged (`--part 0/2`), so that two GPUs share the work. Problems that trivial answers would pass
are judged all the same, and the verdict says so.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import Counter
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kerneldojo.pool import LocalPool, PoolConfig
from kerneldojo.schema import Candidate, Evaluation, Job, Problem, content_hash

TITLE = re.compile(r"Level (\d): (\d+)_")


@dataclass(frozen=True)
class Entry:
    """One line of the leaderboard."""

    problem: str
    title: str
    model: str
    file: str
    claimed: float
    """How many times as fast as eager torch it was there."""


def entries(folder: Path) -> list[Entry]:
    """All lines of the leaderboard in `folder`, problem by problem.

    Raises:
        SystemExit: it is no checkout of it.
    """
    try:
        data: dict[str, list[dict[str, Any]]] = json.loads((folder / "docs/assets/data.json").read_text())
    except (OSError, ValueError) as error:
        raise SystemExit(f"{folder}: no checkout of KernelBenchLeaderboard: {error}") from None
    found: list[Entry] = []
    for title, lines in data.items():
        if matched := TITLE.match(title):
            name = f"l{matched[1]}_p{matched[2]}"
            found += [
                Entry(name, title, str(one["display_name"]), str(one["file"]), float(one["torch_speedup"]))
                for one in lines
            ]
    return found


def part_of(lines: list[Entry], part: int, parts: int) -> list[Entry]:
    """Those of every so many-th problem, in an order that mixes levels and is always the same."""
    problems = sorted({one.problem for one in lines}, key=content_hash)
    mine = {name: place for place, name in enumerate(problems) if place % parts == part}
    return sorted((one for one in lines if one.problem in mine), key=lambda one: mine[one.problem])


def job(folder: Path, entry: Entry, device: str) -> Job:
    """What is asked of a judge."""
    assets = folder / "docs/assets"
    return Job(
        problem=Problem(name=entry.title[:60], source=(assets / f"problems/{entry.problem}.py").read_text()),
        candidate=Candidate(source=(assets / f"solutions/{entry.file}.py").read_text()),
        device=device,
        allow_degenerate=True,
        fresh=True,
    )


def row(entry: Entry, found: Evaluation) -> dict[str, Any]:
    """What is told of one verdict."""
    return {
        "problem": entry.problem,
        "file": entry.file[:8],
        "model": entry.model,
        "claimed": round(entry.claimed, 3),
        "status": found.status.value,
        "exploits": [one.name for one in found.exploits],
        "speedup": found.speedup and round(found.speedup, 3),
        "message": "" if found.status.value == "passed" else found.message[:200],
        "notes": [note[:100] for note in found.notes],
        "stages": dict(found.stage_seconds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a checkout of KernelBenchLeaderboard")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--at-once", type=int, help="verdicts at once; by default the pool's own number")
    parser.add_argument("--part", default="0/1", help="which part of how many, as 0/2")
    parser.add_argument("--seconds", type=float, default=3600.0, help="after which it ends")
    parser.add_argument("--out", type=Path, default=Path("leaderboard"))
    options = parser.parse_args()
    if (given := re.fullmatch(r"(\d+)/(\d+)", options.part)) is None or int(given[1]) >= int(given[2]):
        parser.error(f"--part {options.part}: not a part of a number of parts, such as 0/2")
    part, parts = int(given[1]), int(given[2])
    lines = part_of(entries(options.folder), part, parts)
    options.out.mkdir(parents=True, exist_ok=True)
    pool = LocalPool([options.device], None, PoolConfig(num_verdicts_per_gpu=options.at_once, remember=0))
    statuses, began = Counter[str](), time.monotonic()
    try:
        jobs = {pool.submit(job(options.folder, one, options.device)): one for one in lines}
        with (options.out / "leaderboard.jsonl").open("w") as kept:
            for future in as_completed(jobs, timeout=options.seconds):
                told = row(jobs[future], future.result())
                statuses[told["status"]] += 1
                kept.write(json.dumps(told) + "\n")
                kept.flush()
                if told["status"] != "passed":
                    print(told["problem"], told["file"], told["status"], *told["exploits"], told["message"], flush=True)
    except TimeoutError:
        print(f"{statuses.total()} of {len(lines)} in {options.seconds:.0f} s", flush=True)
    finally:
        pool.close(drain=False)
    print(f"{dict(statuses)}, {60 * statuses.total() / (time.monotonic() - began):.1f} a minute", flush=True)


if __name__ == "__main__":
    main()
