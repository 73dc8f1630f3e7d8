"""The speed of our trainer beside TRL's `GRPOTrainer`, part by part, on one GPU.

    python runs/trainer_speed.py --out speed --seconds 560            # everything that is not measured yet
    python runs/trainer_speed.py --out speed --way dynamic            # TRL generates so: no way is tried first
    python runs/trainer_speed.py --out speed --report                 # the table
    python runs/trainer_speed.py --out /tmp/speed --device cpu --tiny # everything once, tiny

The task (`proof/speed_task.py`): Qwen3-0.6B's shape with random weights, 64 prompts of 512 tokens with two answers
each, exactly 512 new tokens; then the same with lengths drawn from 64 to 512. Each of TRL's ways of generating without
vLLM is tried for a step after another one, and the fastest is measured; ours with and without compiled layers. Each
measurement is a process of its own, so that memory is its own; ours and theirs take turns. TRL may lie in any folder of
PYTHONPATH; nothing is fetched. `--sides ours-vllm,ours-compiled-vllm` has a vLLM server sample for us, on the same GPU.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from proof.clock import Clock
from proof.machine import machine
from proof.speed_ours import SIDES as OURS
from proof.speed_report import TRY, fastest_way, report
from proof.speed_task import TINY, Task
from proof.speed_trl import WAYS
from proof.speed_vllm import SIDES as SERVED
from proof.tables import write_json, write_text

HERE = Path(__file__).parent
LONGEST, LONGEST_TRY = 400.0, 150.0
"""Seconds of one measurement at most, and of a try."""
SIDES = (*OURS, "trl")


def tasks(*, tiny: bool, checkpointing: bool) -> dict[str, Task]:
    """Both runs by name, and the try of a way to generate."""
    changes: dict[str, Any] = {**(TINY if tiny else {}), "checkpointing": checkpointing}
    fixed = Task.model_validate(changes)
    drawn = fixed.model_copy(update={"shortest": fixed.answer_tokens // 8})
    return {TRY: fixed.model_copy(update={"num_warm": 1, "num_steps": 1}), "fixed": fixed, "drawn": drawn}


def main(told: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the measurements; those there are kept")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, help="begin nothing that would not end within so many seconds")
    parser.add_argument("--sides", default="", help=f"only these, with commas: {', '.join((*SIDES, *SERVED))}")
    parser.add_argument("--way", choices=WAYS, help="how TRL generates; without it each way is tried first")
    parser.add_argument("--checkpointing", action="store_true", help="compute activations again in the backward pass")
    parser.add_argument("--tiny", action="store_true", help="a tiny shape, to see that it works")
    parser.add_argument("--report", action="store_true", help="only the table of what is there")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    args = parser.parse_args(told)
    wanted = [side for side in args.sides.split(",") if side] or list(SIDES)
    if unknown := set(wanted) - {*SIDES, *SERVED}:
        parser.error(f"--sides: {', '.join(sorted(unknown))} is none of {', '.join((*SIDES, *SERVED))}")
    if args.one:
        name, _, side = args.one.partition(":")
        task = tasks(tiny=args.tiny, checkpointing=args.checkpointing)[name]
        write_json(args.out / f"{name}-{side}.json", measure(task, side, args.device))
        return 0
    failed = [] if args.report else all_of_them(args, wanted)
    text = report(args.out)
    write_text(args.out / "README.md", text)
    print(text)
    return 1 if failed else 0


def measure(task: Task, side: str, device: str) -> dict[str, Any]:
    """One side at one task, in this process."""
    if side in OURS:
        from proof.speed_ours import measure as ours

        found = ours(task, device, side)
    elif side in SERVED:
        from proof.speed_vllm import measure as served

        found = served(task, device, side)
    else:
        from proof.speed_trl import measure as theirs

        found = theirs(task, device, side.removeprefix("trl-"))
    return {**found, "task": task.model_dump(), "device": device, "machine": machine()}


def all_of_them(args: argparse.Namespace, wanted: Sequence[str]) -> list[str]:
    """Whatever is missing, each in a process of its own; returns what failed."""
    clock, failed = Clock(args.seconds), list[str]()
    for name, side in missing(args.out, wanted, args.way):
        one, is_try = f"{name}:{side}", name == TRY
        if clock.left < (30 if args.tiny else 90):
            print(f"{one}: no time left", flush=True)
            continue
        print(f"{clock.spent:6.0f} s  {one} ...", flush=True)
        command = [sys.executable, str(HERE / "trainer_speed.py"), "--out", str(args.out), "--one", one]
        command += ["--device", args.device, *(["--tiny"] if args.tiny else [])]
        command += ["--checkpointing"] if args.checkpointing else []
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
        allowed = LONGEST_TRY if is_try else LONGEST
        try:
            code = subprocess.run(command, env=environment, timeout=min(allowed, clock.left), check=False).returncode
        except subprocess.TimeoutExpired:
            code = "too slow"
            if is_try and clock.left > 0:  # which is an answer, too
                write_json(args.out / f"{name}-{side}.json", {"too_slow": allowed})
                continue
        if code != 0:
            failed.append(one)
            print(f"{one} failed: {code}", flush=True)
    return failed


def missing(folder: Path, wanted: Sequence[str], way: str | None = None) -> Iterator[tuple[str, str]]:
    """Name of a task and side of what is not measured yet, in order; theirs by `way`, or once all ways were tried."""

    def is_missing(name: str, side: str) -> bool:
        return not (folder / f"{name}-{side}.json").exists()

    ways = [f"trl-{way}" for way in WAYS] if "trl" in wanted and way is None else []
    yield from ((TRY, way) for way in ways if is_missing(TRY, way))
    for name in ("fixed", "drawn"):
        for side in wanted:
            theirs = f"trl-{way}" if way else fastest_way(folder)
            chosen = theirs if side == "trl" else side
            if chosen is not None and is_missing(name, chosen):
                yield name, chosen


if __name__ == "__main__":
    raise SystemExit(main())
