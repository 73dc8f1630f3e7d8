"""Algorithms side by side on the modelled H100: many arms, many seeds, dozens of trials at once.

    python runs/side_by_side.py --list                                       # arms and comparisons; nothing is run
    python runs/side_by_side.py --smoke --out runs-out/smoke                 # everything once, tiny; about two minutes
    python runs/side_by_side.py --out side --seconds 560 --pack "$OUT"       # as far as the time goes, and a pack
    python runs/side_by_side.py --out side --seconds 560 --from pack --pack "$OUT"      # goes on from the pack
    python runs/analysis.py side                                             # tables and plots

A trial is one process with one thread and a judge of its own (one verdict at a time), so that a machine of so many
cores runs as many trials; verdicts are shared through one file. Everything can be killed at any moment: the same
command goes on. A pack holds what another machine needs, trials under way excepted, which begin anew there.
What is compared, and how it is read, is fixed in docs/results/README.md.
"""

from __future__ import annotations

import argparse
import os
import signal
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from proof.arms import COMPARISONS, STRATEGIES, Arm, arms, differences
from proof.clock import Clock
from proof.packing import PackError, pack, unpack
from proof.scales import COLLECTED, DONE, FULL, RESULTS, SCALE, SCALES, STARTS, VERDICTS, WORK, Scale
from proof.tables import read_json, write_json
from proof.workers import STOPPED, Piece, run_all

HERE = Path(__file__).parent
PACKED = "packed"
SMOKE_ARMS = ("start", "trloo-n2", "grpo-n2", "uniform-0.1", "multi-turn")
STOP_SECONDS = 30.0
"""Reserved at the end for processes to stop."""
PACK_SECONDS = 40.0
"""Reserved at the end for a pack."""


def main(told: Sequence[str] | None = None) -> int:
    args = arguments().parse_args(told)
    if args.smoke:
        args.scale, args.arms = "smoke", args.arms or ",".join(SMOKE_ARMS)
    if args.list:
        show(scale_of(args))
        return 0
    if args.out is None:
        raise SystemExit("--out is missing: the folder of the experiment")
    if args.piece:
        return do(args)
    if args.source and not (args.out / SCALE).exists():
        print(f"{unpack(args.source, args.out)} files from {args.source}", flush=True)
        adopt_verdicts(args.out)
    scale = scale_of(args)
    agree(scale, args.out)
    failed = work(args, scale)
    if args.pack:
        write_pack(args, scale)
    for piece in failed:
        print(f"failed: {piece.name}, see {piece.log}", flush=True)
    return 1 if failed else 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder of the experiment; one that was begun goes on")
    parser.add_argument("--seconds", type=float, help="stop cleanly within so many seconds, packing included")
    parser.add_argument("--pack", type=Path, help="folder for the pack at the end")
    parser.add_argument("--from", dest="source", type=Path, help="folder of a pack to go on from")
    parser.add_argument("--scale", choices=list(SCALES), default="full", help="how much of everything")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change one size of the scale")
    parser.add_argument("--seeds", help="these seeds: `8` for 0 to 7, `4-7`, or `1,5`; by default the scale's")
    parser.add_argument("--arms", default="", help="only these arms, by name, with commas")
    parser.add_argument("--at-once", type=int, default=len(os.sched_getaffinity(0)), help="trials at once")
    parser.add_argument("--list", action="store_true", help="show arms with what they change, and comparisons")
    parser.add_argument("--smoke", action="store_true", help="the scale `smoke` and a few arms")
    parser.add_argument("--piece", default="", help=argparse.SUPPRESS)
    return parser


def scale_of(args: argparse.Namespace) -> Scale:
    """The scale that is asked for; that on record where there is one and nothing is asked."""
    recorded = None if args.out is None else args.out / SCALE
    if recorded is not None and recorded.exists() and args.scale == "full" and not args.set:
        return Scale.model_validate(read_json(recorded))
    chosen = SCALES[args.scale].model_dump()
    for change in args.set:
        key, equals, value = change.partition("=")
        if not equals or key not in chosen:
            raise SystemExit(f"--set {change}: use KEY=VALUE with one of {', '.join(chosen)}")
        chosen[key] = value
    return Scale.model_validate(chosen)


def seeds_of(args: argparse.Namespace, scale: Scale) -> list[int]:
    if not args.seeds:
        return list(range(scale.num_seeds))
    first, dash, last = args.seeds.partition("-")
    if dash:
        return list(range(int(first), int(last) + 1))
    return [int(one) for one in args.seeds.split(",")] if "," in args.seeds else list(range(int(args.seeds)))


def arms_of(args: argparse.Namespace, scale: Scale) -> list[Arm]:
    known = arms(scale)
    names = [name for name in args.arms.split(",") if name] or list(known)
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise SystemExit(f"--arms {', '.join(unknown)}: choose among {', '.join(known)}")
    return [known[name] for name in names]


def show(scale: Scale) -> None:
    """Arms with the keys of `RLConfig` that they change, and comparisons."""
    print("Scale:", ", ".join(f"{key} {value}" for key, value in scale.model_dump().items()), "\n")
    for arm in arms(scale).values():
        print(f"{arm.name}: {arm.about} (test episodes of {arm.eval_turns} turns)")
        for key, (base, mine) in differences(arm, scale).items():
            print(f"    {key}: {base} -> {mine}")
    print("\nComparisons (treatment - control), fast@1.2 on the test graphs, sampled at temperature 1:")
    for one in COMPARISONS:
        print(f"    {one.name}: {one.treatment} - {one.control}, {one.turn} turn; {one.question}")
    print(f"    and, with the same policies, {' / '.join(STRATEGIES)} under {scale.search_calls} calls")


def agree(scale: Scale, folder: Path) -> None:
    """Put the scale on record, or see that it is the one on record."""
    path = folder / SCALE
    if not path.exists():
        write_json(path, scale.model_dump(mode="json"))
    elif Scale.model_validate(read_json(path)) != scale:
        raise SystemExit(f"{folder} holds an experiment of another scale: give another folder")


# The parent: which pieces there are


def work(args: argparse.Namespace, scale: Scale) -> list[Piece]:
    clock = Clock(args.seconds, STOP_SECONDS + (PACK_SECONDS if args.pack else 0))
    pieces = pieces_of(args, scale)
    todo = sum(not piece.is_done for piece in pieces)
    print(f"{len(pieces)} pieces, {todo} to do, {args.at_once} at once", flush=True)

    def ended(piece: Piece, seconds: float) -> None:
        note = {key: value for key, value in read_json(piece.result).items() if isinstance(value, float | int)}
        told = ", ".join(f"{key} {value:.3g}" for key, value in note.items() if key not in ("began", "ended", "seed"))
        left = sum(not one.is_done for one in pieces)
        print(f"{clock.spent:6.0f} s  {piece.name}: {seconds:.0f} s  {told}  ({left} left)", flush=True)

    environment = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    failed = run_all(pieces, clock, at_once=args.at_once, environment=environment, on_end=ended)
    left = sum(not one.is_done for one in pieces)
    print(f"{clock.spent:6.0f} s  {len(pieces) - left} of {len(pieces)} pieces done", flush=True)
    return failed


def pieces_of(args: argparse.Namespace, scale: Scale) -> list[Piece]:
    """The corpus, a start a seed, and trials, seed by seed so that what is done early can be compared."""
    out, seeds = args.out, seeds_of(args, scale)
    threads = min(4, max(1, args.at_once // len(seeds)))

    def piece(name: str, result: Path, needs: Sequence[Path], slots: int) -> Piece:
        same = [item for change in args.set for item in ("--set", change)]
        command = [sys.executable, str(HERE / "side_by_side.py"), "--out", str(out), "--scale", args.scale, *same]
        command += ["--piece", name, "--at-once", str(slots)]
        return Piece(name, command, result, needs, out / WORK / "logs" / f"{name.replace(':', '-')}.log")

    corpus = out / COLLECTED / DONE
    starts = {seed: out / STARTS / f"seed-{seed}" / DONE for seed in seeds}
    collect = [] if all(path.exists() for path in starts.values()) else [piece("collect", corpus, [], args.at_once)]
    making = [piece(f"start:{seed}", path, [corpus], threads) for seed, path in starts.items()]
    trials = [
        piece(f"trial:{arm.name}:{seed}", out / RESULTS / arm.name / f"seed-{seed}" / DONE, [starts[seed]], 1)
        for seed in seeds
        for arm in arms_of(args, scale)
    ]
    return [*collect, *making, *trials]


# A child: one piece


def do(args: argparse.Namespace) -> int:
    """Do one piece in this process; 75 where it was asked to stop."""

    def stop(number: int, frame: Any) -> None:
        raise SystemExit(STOPPED)

    signal.signal(signal.SIGTERM, stop)
    from proof import trial

    kind, _, rest = args.piece.partition(":")
    scale = scale_of(args)
    try:
        if kind == "start":
            import torch

            torch.set_num_threads(args.at_once)
            trial.make_start(scale, args.out, int(rest))
            return 0
        executor = trial.open_judges(scale, args.out, args.at_once)
        try:
            if kind == "collect":
                trial.collect(scale, args.out, executor)
            else:
                name, _, seed = rest.rpartition(":")
                trial.run_trial(scale, args.out, arms(scale)[name], int(seed), executor)
        finally:
            executor.close(drain=False)
    except trial.Stopped:
        return STOPPED
    except trial.Failed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


# Packs


def write_pack(args: argparse.Namespace, scale: Scale) -> None:
    """Results always; what is needed to go on, while there is something to do, as far as it fits."""
    pieces = pieces_of(args, scale)
    todo = [piece for piece in pieces if not piece.is_done]
    names = [SCALE, RESULTS]
    more = [STARTS, *([COLLECTED] if any(one.name.startswith("start:") for one in todo) else [f"{COLLECTED}/{DONE}"])]
    more += [PACKED] if save_verdicts(args.out) else []
    for wanted in ([*names, *more], [*names, *more[:-1]], names) if todo else ([*names, f"{COLLECTED}/{DONE}"],):
        try:
            written = pack(args.out, args.pack, wanted)
        except PackError as error:
            print(f"the pack is too large with {', '.join(wanted)}: {error}", flush=True)
            continue
        size = sum(path.stat().st_size for path in written) / 2**20
        print(f"pack of {size:.1f} MiB in {args.pack}: {', '.join(wanted)}", flush=True)
        return
    raise SystemExit("no pack could be written")


def save_verdicts(folder: Path) -> bool:
    """Copy the verdicts, as they are at one moment, to where packs take them from."""
    source, target = folder / VERDICTS / "verdicts.sqlite3", folder / PACKED / "verdicts.sqlite3"
    if not source.exists():
        return False
    target.parent.mkdir(exist_ok=True)
    target.unlink(missing_ok=True)
    database = sqlite3.connect(source)
    try:
        database.execute("VACUUM INTO ?", (str(target),))
    finally:
        database.close()
    return True


def adopt_verdicts(folder: Path) -> None:
    """Use the verdicts that came with a pack."""
    source = folder / PACKED / "verdicts.sqlite3"
    if source.exists() and not (folder / VERDICTS).exists():
        (folder / VERDICTS).mkdir()
        target = folder / VERDICTS / "verdicts.sqlite3"
        source.rename(target)
        database = sqlite3.connect(target)  # as a pool would leave it: dozens are about to open it at once
        try:
            database.execute("PRAGMA journal_mode=WAL")
        finally:
            database.close()


assert FULL.num_seeds >= 8  # what was promised

if __name__ == "__main__":
    raise SystemExit(main())
