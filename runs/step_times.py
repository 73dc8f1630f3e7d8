"""What a step of RL spends its time on, with 8, 4, 2 and 1 GPUs, and how busy the judges are meanwhile.

    python runs/step_times.py --out steps --seconds 560                       # all that is not measured yet
    python runs/step_times.py --out steps --from pack --pack "$OUT" --seconds 560   # goes on, also elsewhere
    python runs/step_times.py --out steps --report                            # the table and the picture
    python runs/step_times.py --out /tmp/steps --device model:h100 --tiny     # everything once, tiny, without a GPU

The policy is that of the proof on an H200 (`runs/h200.toml`: 11 million parameters, 16 prompts x 12 answers a step),
after short SFT on a teacher's answers that are collected on a modelled device, or any model that `--start` names. Three
ways to share N GPUs (`proof/step_task.py`): all judge, and one of them learns in between; one learns, the others judge;
the same with two steps at once (`staleness = 1`). Each is a run of its own process from the same start over the same
problems, with a cache of its own, so that none finds audited what another had to audit. It ends after 8 steps, or after
`--each` seconds with the steps that there are; the first two are not counted, and not the last.

What is claimed, and when it holds, is in docs/results/README.md. On a modelled device N counts slots of judges: that
shows that everything works, and nothing of a GPU.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from h200 import DONE, Proof, alarm
from proof.clock import Clock
from proof.h200_config import Places, ProofConfig, load_proof, places
from proof.machine import machine
from proof.packing import pack, unpack
from proof.step_report import measured, write_report
from proof.step_task import Arrangement, arrangements, figures, run_folder, short_start, step_config
from proof.tables import write_json

ROOT = Path(__file__).parents[1]
START = "start"
RESERVE = 20.0
"""Seconds at the end, for the report and a pack."""
SHORTEST, TINY_SHORTEST = 90.0, 20.0
"""Nothing is begun with less left."""
END_SECONDS = 60.0
"""How long a run that is asked to stop may take to save."""


def main(told: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the measurements; those there are kept")
    parser.add_argument("--device", default="cuda", help="`cuda` for the GPUs of this machine, or `model:h100`")
    parser.add_argument("--config", type=Path, default=ROOT / "runs" / "h200.toml", help="sizes")
    parser.add_argument("--start", type=Path, help="a model to begin with, in place of one that is made")
    parser.add_argument("--only", default="", help="only these, with commas: 8-ahead, 8-apart, 8-shared, ...")
    parser.add_argument("--seconds", type=float, help="stop cleanly within so many seconds")
    parser.add_argument("--each", type=float, default=240.0, help="seconds of one run at most")
    parser.add_argument("--threads", type=int, default=1, help="of torch, where the policy is on the processor")
    parser.add_argument("--pack", type=Path, help="folder for what another machine needs to go on")
    parser.add_argument("--from", dest="source", type=Path, help="folder of a pack to go on from")
    parser.add_argument("--tiny", action="store_true", help="a tiny model and five steps, to see that it works")
    parser.add_argument("--report", action="store_true", help="only the table and the picture of what is there")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    args = parser.parse_args(told)
    if args.report:
        print(write_report(args.out))
        return 0
    if args.source and not args.out.exists():
        print(f"{unpack(args.source, args.out)} files from {args.source}", flush=True)
    import torch

    torch.set_num_threads(args.threads)
    proof, place = load_proof(args.config, tiny=args.tiny), places(args.out, args.device, "auto")
    proof = proof if args.tiny else short_start(proof)
    wanted = chosen(args.only, place)
    if args.one == START:
        make_start(proof, place)
        return 0
    if args.one:
        measure(proof, place, next(one for one in wanted if one.name == args.one), args)
        return 0
    clock = Clock(args.seconds, RESERVE)
    failed: list[str] = []
    begin = args.start or place.start(proof.seeds[0])
    if args.start is None and not (begin / DONE).exists():
        print(f"{clock.spent:6.0f} s  {START} ...", flush=True)
        in_a_process(args, START, clock.left - END_SECONDS)
    if begin.exists():
        failed = all_of_them(args, wanted, clock)
    else:
        print(f"{clock.spent:6.0f} s  there is no start yet; the same command goes on", flush=True)
    if args.pack:
        pack(args.out, args.pack, ["measured", "results", "starts" if begin.exists() else "collected"])
    print(write_report(args.out))
    return 1 if failed else 0


def chosen(only: str, place: Places) -> list[Arrangement]:
    """What this machine can do, or of that what was asked for.

    Raises:
        SystemExit: it cannot, in one line.
    """
    there = len(place.judges) if place.device == "cuda" else len(os.sched_getaffinity(0))
    known = {one.name: one for one in arrangements(there)}
    names = [name for name in only.split(",") if name] or list(known)
    for name in names:
        if name not in known:
            raise SystemExit(f"--only {name}: this machine can do {', '.join(known)}")
    return [known[name] for name in names]


def make_start(proof: ProofConfig, place: Places) -> None:
    """The teacher's answers, and SFT on them, as far as they are missing; whoever is asked to stop goes on later."""
    clock = Clock(None)
    phases, seed = Proof(proof, place, clock), proof.seeds[0]
    with alarm(clock):
        if not (place.out / "collected" / DONE).exists():
            answers = phases.collect()
            print(f"{clock.spent:6.0f} s  collected: {answers}", flush=True)
        steps = phases.make_start(seed)
        print(f"{clock.spent:6.0f} s  SFT: {steps}", flush=True)


def all_of_them(args: argparse.Namespace, wanted: Sequence[Arrangement], clock: Clock) -> list[str]:
    """Whatever is missing, each in a process of its own; returns what failed."""
    failed: list[str] = []
    for one in wanted:
        if measured(args.out, one).exists():
            continue
        if clock.left < (TINY_SHORTEST if args.tiny else SHORTEST) + END_SECONDS:
            print(f"{one.name}: no time left", flush=True)
            continue
        print(f"{clock.spent:6.0f} s  {one.name} ...", flush=True)
        for old in (run_folder(args.out, one), args.out / "work" / f"cache-{one.name}"):
            shutil.rmtree(old, ignore_errors=True)  # of a run that was killed, which is no measurement
        code = in_a_process(args, one.name, min(args.each, clock.left - END_SECONDS))
        if code != 0:
            failed.append(one.name)
            print(f"{one.name} failed: {code}", flush=True)
    return failed


def in_a_process(args: argparse.Namespace, name: str, seconds: float) -> int:
    """The start, or one measurement; after `seconds` it is asked to stop with what it has."""
    cache = args.out / "work" / f"cache-{name}"
    command = [sys.executable, str(Path(__file__)), "--one", name, "--out", str(args.out), "--device", args.device]
    command += ["--config", str(args.config), "--threads", str(args.threads), *(["--tiny"] if args.tiny else [])]
    command += ["--start", str(args.start)] if args.start else []
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "XDG_CACHE_HOME": str(cache.absolute())}
    process = subprocess.Popen(command, env=environment)
    try:
        return process.wait(timeout=None if seconds == float("inf") else max(0.0, seconds))
    except subprocess.TimeoutExpired:
        process.terminate()
    try:
        return process.wait(timeout=END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def measure(proof: ProofConfig, place: Places, one: Arrangement, args: argparse.Namespace) -> None:
    """One arrangement, in this process.

    Raises:
        SystemExit: it ended badly, or too early to be counted, in one line.
    """
    from kerneldojo.training.judges import open_executor
    from kerneldojo.training.parallel import start_ranks
    from kerneldojo.training.rl import train_rl

    told = step_config(proof, place, one, tiny=args.tiny)
    if args.start:
        told = told.model_copy(update={"model": told.model.model_copy(update={"path": str(args.start)})})
    ranks = start_ranks(told.device)
    executor = open_executor(told, ranks)
    try:
        outcome = train_rl(told, executor, ranks, show=False)
    finally:
        executor.close(drain=False)
    if not outcome.is_good:
        raise SystemExit(f"{one.name}: ended after {outcome.steps} steps: {outcome.reason}")
    try:
        found: dict[str, Any] = figures(told.output, told.steps)
    except ValueError as error:
        raise SystemExit(f"{one.name}: {error}") from error
    sizes = {"prompts": told.prompts_per_step, "samples": told.samples_per_prompt, "device": told.play.device}
    note = {**one.model_dump(), **found, "sizes": sizes | {"parameters": parameters(told.output / "model")}}
    judge = told.judge.model_dump(mode="json")
    measured(place.out, one).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(told.output / "metrics.jsonl", measured(place.out, one).with_suffix(".jsonl"))
    write_json(measured(place.out, one), {**note, "judge": judge, "machine": machine()})
    shutil.rmtree(told.output)


def parameters(folder: Path) -> int:
    """Of the model there."""
    from kerneldojo.training.models import load_model, num_parameters

    return num_parameters(load_model(str(folder)))


if __name__ == "__main__":
    raise SystemExit(main())
