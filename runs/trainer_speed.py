"""The speed of our trainer beside TRL's `GRPOTrainer`, part by part, on one GPU.

    python runs/trainer_speed.py --out speed --seconds 560            # everything that is not measured yet
    python runs/trainer_speed.py --out speed --report                 # the table
    python runs/trainer_speed.py --out /tmp/speed --device cpu --tiny # everything once, tiny

The task (`proof/speed_task.py`): Qwen3-0.6B's shape with random weights, 64 prompts of 512 tokens with two answers
each, exactly 512 new tokens; then the same with lengths drawn from 64 to 512. TRL is measured with each of its ways of
generating without vLLM, and the fastest is named; ours with and without compiled layers. Each measurement is a process
of its own, so that memory is its own; ours and theirs take turns. TRL may lie in any folder of PYTHONPATH; nothing is
fetched.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from proof.clock import Clock
from proof.machine import machine
from proof.speed_ours import SIDES as OURS
from proof.speed_task import PHASES, TINY, Task
from proof.speed_trl import WAYS
from proof.tables import read_json, write_json, write_text

HERE = Path(__file__).parent
LONGEST = 400.0
"""Seconds of one measurement at most."""
SIDES = (*OURS, *(f"trl-{way}" for way in WAYS))


def tasks(*, tiny: bool, checkpointing: bool) -> dict[str, Task]:
    """Both runs by name."""
    changes: dict[str, Any] = {**(TINY if tiny else {}), "checkpointing": checkpointing}
    fixed = Task.model_validate(changes)
    shortest = fixed.answer_tokens // 8
    return {"fixed": fixed, "drawn": fixed.model_copy(update={"shortest": shortest})}


def main(told: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the measurements; those there are kept")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, help="begin nothing that would not end within so many seconds")
    parser.add_argument("--sides", default="", help=f"only these, with commas: {', '.join(SIDES)}")
    parser.add_argument("--checkpointing", action="store_true", help="compute activations again in the backward pass")
    parser.add_argument("--tiny", action="store_true", help="a tiny shape, to see that it works")
    parser.add_argument("--report", action="store_true", help="only the table of what is there")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    args = parser.parse_args(told)
    known = tasks(tiny=args.tiny, checkpointing=args.checkpointing)
    if args.one:
        name, _, side = args.one.partition(":")
        write_json(args.out / f"{name}-{side}.json", measure(known[name], side, args.device))
        return 0
    failed = [] if args.report else all_of_them(args, known)
    text = report(args.out)
    write_text(args.out / "README.md", text)
    print(text)
    return 1 if failed else 0


def measure(task: Task, side: str, device: str) -> dict[str, Any]:
    """One side at one task, in this process."""
    if side in OURS:
        from proof.speed_ours import measure as ours

        found = ours(task, device, side)
    else:
        from proof.speed_trl import measure as theirs

        found = theirs(task, device, side.removeprefix("trl-"))
    return {**found, "task": task.model_dump(), "device": device, "machine": machine()}


def all_of_them(args: argparse.Namespace, known: dict[str, Task]) -> list[str]:
    """Whatever is missing, each in a process of its own; returns what failed."""
    clock, failed = Clock(args.seconds), list[str]()
    wanted = [side for side in args.sides.split(",") if side] or list(SIDES)
    for name in known:
        for side in wanted:
            one = f"{name}:{side}"
            if (args.out / f"{name}-{side}.json").exists():
                continue
            if clock.left < (30 if args.tiny else 90):
                print(f"{one}: no time left", flush=True)
                continue
            print(f"{clock.spent:6.0f} s  {one} ...", flush=True)
            command = [sys.executable, str(HERE / "trainer_speed.py"), "--out", str(args.out), "--one", one]
            command += ["--device", args.device, *(["--tiny"] if args.tiny else [])]
            command += ["--checkpointing"] if args.checkpointing else []
            environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
            try:
                code = subprocess.run(
                    command, env=environment, timeout=min(LONGEST, clock.left), check=False
                ).returncode
            except subprocess.TimeoutExpired:
                code = "too slow"
            if code != 0:
                failed.append(one)
                print(f"{one} failed: {code}", flush=True)
    return failed


def report(folder: Path) -> str:
    """What is there, as Markdown."""
    lines = ["# Speed of the trainer", ""]
    for name, title in (("fixed", "Answers of equal length"), ("drawn", "Lengths drawn")):
        found = {side: read_json(path) for side in SIDES if (path := folder / f"{name}-{side}.json").exists()}
        if not found:
            continue
        lines += [f"## {title}", "", *_table(found), "", *_remarks(found), ""]
    return "\n".join(lines)


def _table(found: dict[str, Any]) -> list[str]:
    names = ("generate", *PHASES[1:], "learn")
    heads = ["generated", "log-probs", "forward", "backward", "step", "these four"]
    lines = ["Tokens a second (prompts count, but for what is generated), medians:", ""]
    lines += [f"| | {' | '.join(heads)} | seconds a step | without log-probs | warm-up, s | peak memory, GiB |"]
    lines.append("|---|" + "---|" * (len(heads) + 4))
    for side, one in found.items():
        rates = [_rate(one["tokens_a_second"][name]) for name in names]
        whole, bare = sum(one["median_seconds"].values()), one["median_seconds"]["log_probs"]
        memory = one["memory"]["allocated_gib"] if one["memory"] else None
        warm = sum(one["warm_up_seconds"].values())
        peak = f"{memory:.1f}" if memory else ""
        lines.append(f"| {side} | {' | '.join(rates)} | {whole:.2f} | {whole - bare:.2f} | {warm:.1f} | {peak} |")
    return lines


def _remarks(found: dict[str, Any]) -> list[str]:
    theirs = {side: one for side, one in found.items() if side not in OURS}
    lines: list[str] = []
    if theirs:
        fastest = max(theirs, key=lambda side: theirs[side]["tokens_a_second"]["generate"])
        lines.append(f"TRL {theirs[fastest]['version']}; its fastest generation without vLLM here: `{fastest}`.")
        best = {name: max(one["tokens_a_second"][name] for one in theirs.values()) for name in ("log_probs", "learn")}
        for side in (side for side in OURS if side in found):
            mine, other = (found[one]["tokens_a_second"] for one in (side, fastest))
            lines.append(
                f"`{side}` over theirs: generation {mine['generate'] / other['generate']:.2f}, log-probabilities "
                f"{mine['log_probs'] / best['log_probs']:.2f}, all but generation {mine['learn'] / best['learn']:.2f} "
                "(the last two against the fastest of its rows)."
            )
        lines.append(
            "With one update a batch TRL computes no log-probabilities apart, so that its step is the column without "
            "them; ours always has them."
        )
    one = next(iter(found.values()))
    task, where = one["task"], one["machine"]
    lines.append(
        f"{task['num_prompts']} prompts of {task['prompt_tokens']} tokens, {task['num_samples']} answers each, "
        f"micro-batches of {task['micro_batch']} rows, checkpointing {'on' if task['checkpointing'] else 'off'}; "
        f"{task['num_steps']} steps after {task['num_warm']}; on {one['device']}, {', '.join(where.get('gpus', []))} "
        f"{where['processor']}, torch {where['versions'].get('torch')}, commit {where['commit']}."
    )
    weights = {f"{side}: {one['weights']}" for side, one in found.items()}
    return [*lines, f"Weights: {'; '.join(sorted(weights))}."]


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


if __name__ == "__main__":
    raise SystemExit(main())
