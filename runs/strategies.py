"""Which strategy spends calls best: searches of frozen graphs by a policy, and the table of them.

    python runs/strategies.py search --policy teacher --suite graphs:validation --seeds 3 --table runs-out/searches.csv
    python runs/strategies.py search --policy runs-out/side/starts/seed-0 --suite graphs:extrapolation --table ...
    python runs/strategies.py read --table docs/results/search/searches.csv

A model's folder is one that `side_by_side.py` made; its name stands for the seed of its start. An answer counts as its
second verdict says, after the first has chosen it, at every number of calls.
"""

from __future__ import annotations

import asyncio
import csv
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from kerneldojo.episodes import PlayConfig
from kerneldojo.policies.local import LocalConfig, LocalPolicy
from kerneldojo.policies.teacher import Teacher
from kerneldojo.pool import open_pool
from kerneldojo.problems import load_suite
from kerneldojo.rollout import from_executor
from kerneldojo.schema import Problem
from kerneldojo.search import Budget, choose, parse_strategy, search
from kerneldojo.search.selection import curve

STRATEGIES = ("serial", "best-first", "2x8", "4x4", "sequential", "parallel")
POINTS = (2, 4, 8, 16, 32)
NUM_DRAWS = 10_000
HEAD = ["policy", "suite", "seed", "strategy", "problem"]
Floats = NDArray[np.float64]
app = typer.Typer(add_completion=False)
Table = Annotated[Path, typer.Option("--table")]


@app.command("search")
def search_command(
    policy: Annotated[str, typer.Option()],
    suite: Annotated[str, typer.Option()],
    table: Table,
    num_problems: int = 24,
    first: int = 0,
    seeds: int = 1,
    calls: int = 16,
    strategy: Annotated[list[str], typer.Option()] = list(STRATEGIES),  # noqa: B006 - typer's own way
    device: str = "model:h100",
) -> None:
    """Search some graphs of a set, from the `first` on, by each strategy; rows are appended."""
    problems = load_suite(suite, "small")[first : first + num_problems]
    executor = open_pool("local", [device], num_slots=1)
    try:
        for seed in range(seeds):
            rows = asyncio.run(_rows(policy, problems, executor, strategy, calls, seed, device))
            is_new = not table.exists()
            with table.open("a", newline="") as file:
                if is_new:
                    csv.writer(file).writerow([*HEAD, *range(1, calls + 1)])
                csv.writer(file).writerows([_name(policy), suite, _seed(policy, seed), *row] for row in rows)
    finally:
        executor.close(drain=False)


def _name(policy: str) -> str:
    return "teacher" if policy == "teacher" else "model"


def _seed(policy: str, seed: int) -> str:
    return str(seed) if policy == "teacher" else Path(policy).name.removeprefix("seed-") + (f".{seed}" if seed else "")


async def _rows(
    policy: str, problems: list[Problem], executor: Any, strategies: list[str], calls: int, seed: int, device: str
) -> list[list[str]]:
    writer: Any = Teacher() if policy == "teacher" else LocalPolicy.open(policy, LocalConfig(device="cpu"))
    config = PlayConfig(device=device, protocol="quick")
    if policy != "teacher":  # as it was trained
        config = PlayConfig(
            device=device, protocol="quick", style="compact", max_answer_tokens=96, max_prompt_tokens=1944
        )
    gate = asyncio.Semaphore(16)
    judge = from_executor(executor)

    async def one(name: str, problem: Problem) -> list[str]:
        async with gate:
            budget, strategy = Budget(calls=calls), parse_strategy(name)
            found = await search(problem, writer, judge, strategy, budget, config, seed=seed, num_at_once=4)
            if found.fault:
                raise RuntimeError(f"{problem.name}, {name}: {found.fault}")
            winner = await choose(found, judge, protocol="standard", whole_curve=True)
        values = curve(found, winner.finalists, range(1, calls + 1))
        return [name, problem.name, *(f"{value:.3f}" for value in values)]

    try:
        return list(await asyncio.gather(*(one(name, problem) for problem in problems for name in strategies)))
    finally:
        await writer.close()


@app.command("read")
def read_command(table: Table) -> None:
    """Mean speedups (failures count as 0), and what best-first has over the others."""
    with table.open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    policies, suites = sorted({row[0] for row in rows}), sorted({row[1] for row in rows})
    for policy in policies:
        for chosen in (*([suite] for suite in suites), *([suites] if len(suites) > 1 else [])):
            _tell(policy, chosen, [row[2:] for row in rows if row[0] == policy and row[1] in chosen])


def _tell(policy: str, suites: list[str], rows: list[list[str]]) -> None:
    found = _arrays(rows)
    shape = next(iter(found.values())).shape
    print(f"{policy}, {' and '.join(suites)}: {shape[0]} seeds, {shape[1]} problems")
    for name, values in found.items():
        print(f"  {name:11s}" + "".join(f"  @{calls} {values[..., calls - 1].mean():.2f}" for calls in _points(values)))
    for name in (name for name in found if name != "best-first"):
        print(
            f"  best-first - {name:11s}"
            + "".join(_difference(found, name, calls) for calls in _points(found[name])[1:])
        )


def _points(values: Floats) -> list[int]:
    return [calls for calls in POINTS if calls <= values.shape[-1]]


def _arrays(rows: list[list[str]]) -> dict[str, Floats]:
    """(seeds, problems, calls) of each strategy."""
    seeds, problems = sorted({row[0] for row in rows}), sorted({row[2] for row in rows})
    found: dict[str, Floats] = {}
    for seed, name, problem, *values in rows:
        array = found.setdefault(name, np.full((len(seeds), len(problems), len(values)), np.nan))
        array[seeds.index(seed), problems.index(problem)] = [float(value) for value in values]
    return found


def _difference(found: dict[str, Floats], name: str, calls: int) -> str:
    """Mean over seeds and problems, with a 95 % interval: bootstrap over problems, each with all of its seeds."""
    by_problem = (found["best-first"] - found[name])[..., calls - 1].mean(axis=0)
    draws = np.random.default_rng(0).integers(len(by_problem), size=(NUM_DRAWS, len(by_problem)))
    low, high = np.quantile(by_problem[draws].mean(axis=1), [0.025, 0.975])
    return f"  @{calls} {by_problem.mean():+.2f} ({low:+.2f} to {high:+.2f})"


if __name__ == "__main__":
    app()
