"""What a step of RL spends its time on, and how busy the judges are, one step after the other and two at once.

    python benchmarks/overlap.py recipes/laptop-rl.toml --model runs-out/laptop/sft/model --out overlap
    python benchmarks/overlap.py recipes/h200-rl.toml --ranks 8 --set play.device=cuda --out overlap   # eight GPUs

The same run, from the same model, is made with `staleness = 0` and `staleness = 1`, one after the other, each by
`dojo train rl` in a process of its own. No verdict is kept from one to the other. `--set` changes a key of the recipe.
The first two steps and the last are not counted: workers start, the second step is begun beside the first, and beside
the last there is none to begin.

For each run: seconds a step (wall clock), what the policy's process did in them (`generate`, `score`, `update`; `wait`
is for verdicts with nothing else to do), the share of the judges' slots that were at work, verdicts a second, and the
CPU seconds of all its processes. Printed, and written to `OUT/overlap.json`; both runs' `metrics.jsonl` stay beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

NUM_SKIPPED = 2
"""Steps at the start that are not counted."""
PHASES = ("generate", "wait", "score", "update", "step")


def cpu_seconds() -> float:
    """Of all processes that have ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def train(arguments: argparse.Namespace, staleness: int) -> dict[str, Any]:
    """One run; its figures."""
    output = arguments.out / f"staleness-{staleness}"
    changes = {"output": output, "staleness": staleness, "steps": arguments.steps, "judge.cache": "none"}
    changes |= {"evaluation.problems": "[]", "log.tensorboard": "false", "model.path": arguments.model}
    told = [f"{key}={value}" for key, value in changes.items() if value is not None] + arguments.set
    start = [sys.executable, "-m"]
    if arguments.ranks > 1:
        start += ["torch.distributed.run", "--nproc-per-node", str(arguments.ranks), "-m"]
    command = [*start, "kerneldojo.cli", "train", "rl", str(arguments.recipe), "--quiet"]
    command += [word for one in told for word in ("--set", one)]
    before = cpu_seconds()
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": str(arguments.threads)})
    records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return summary(staleness, [one for one in records if "reward" in one][NUM_SKIPPED:-1], cpu_seconds() - before)


def summary(staleness: int, steps: list[dict[str, Any]], cpu: float) -> dict[str, Any]:
    """Means over the counted steps."""
    spent = [one["seconds"] for one in steps]
    total = sum(one["step"] for one in spent)
    judged = [one for one in spent if "judge_busy" in one]
    judged_s = sum(one["step"] for one in judged)
    stale = [one["staleness"] for one in steps if one.get("staleness", {}).get("samples")]
    return {
        "staleness": staleness,
        "num_steps": len(steps),
        "seconds": {name: sum(one.get(name, 0.0) for one in spent) / len(steps) for name in PHASES},
        "judge_busy": sum(one["judge_busy"] * one["step"] for one in judged) / judged_s if judged_s else None,
        "judged": sum(one["verdicts"]["judged"] for one in steps) / len(steps),
        "verdicts_a_second": sum(one["verdicts"]["judged"] for one in steps) / total,
        "cpu_seconds_whole_run": cpu,
        "stale": {name: sum(one[name] for one in stale) / len(stale) for name in stale[0]} if stale else {},
        "reward": sum(one["reward"] for one in steps) / len(steps),
        "mrs_acceptance": [(one.get("samples") or {}).get("mrs_acceptance") for one in steps],
    }


def show(found: list[dict[str, Any]]) -> None:
    """The table."""
    print(f"{'staleness':>9} {'judges busy':>11} {'verdicts/s':>10} {'CPU s':>7}  seconds a step")
    for one in found:
        seconds = ", ".join(f"{name} {value:.2f}" for name, value in one["seconds"].items())
        busy = "-" if one["judge_busy"] is None else f"{one['judge_busy']:.1%}"
        rate, cpu = one["verdicts_a_second"], one["cpu_seconds_whole_run"]
        print(f"{one['staleness']:>9} {busy:>11} {rate:>10.2f} {cpu:>7.1f}  {seconds}")
        if one["stale"]:
            print("          " + ", ".join(f"{name} {value:.4f}" for name, value in one["stale"].items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path, help="what `dojo train rl` takes")
    parser.add_argument("--model", help="the model to begin with; by default the recipe's")
    parser.add_argument("--steps", type=int, default=10, help="steps of each run")
    parser.add_argument("--ranks", type=int, default=1, help="processes that train, by torchrun")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch in each of them, and in each judge")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key of the recipe to change")
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    arguments = parser.parse_args()
    if arguments.steps < NUM_SKIPPED + 2:
        parser.error(f"--steps: at least {NUM_SKIPPED + 2} are needed")
    arguments.out.mkdir(parents=True)
    found: list[dict[str, Any]] = []
    for staleness in (0, 1):
        found.append(train(arguments, staleness))
        note = {"machine": platform.platform(), "cores": os.cpu_count(), "arguments": sys.argv[1:], "runs": found}
        (arguments.out / "overlap.json").write_text(json.dumps(note, indent=1) + "\n")
    show(found)


if __name__ == "__main__":
    main()
