"""Searches beside a benchmark: the same problems, policy and judge, other ways to spend calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kerneldojo.cli.arguments import BadUsage
from kerneldojo.cli.report import SEARCHES
from kerneldojo.cli.streams import say

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from kerneldojo.episodes import PlayConfig
    from kerneldojo.pool import Executor
    from kerneldojo.schema import Problem
    from kerneldojo.search import Strategy
    from kerneldojo.search.record import SearchRecord

NUM_AT_ONCE = 4
"""Answers of one search under way at most: the more there are, the later a strategy hears of its verdicts."""
NUM_SEARCHES = 8
"""Searches under way at once; they do not know of each other."""


class Bench(Protocol):
    """What of a benchmark its searches need."""

    problems: Sequence[Problem]
    config: PlayConfig
    rollout: dict[str, Any]
    seed: int
    out: Path


def search_all(bench: Bench, policy: str, executor: Executor, names: Sequence[str], calls: int) -> None:
    """Search every problem with every strategy, but for what the run has already; records are appended as they come.

    Raises:
        BadUsage: a strategy, the policy or the file cannot be used as asked for.
    """
    from kerneldojo.search import parse_strategy
    from kerneldojo.search.record import read

    try:
        strategies = [parse_strategy(name) for name in names]
        done = {record.key for record in read(bench.out / SEARCHES)}
        wanted = [
            (strategy, problem)
            for strategy in strategies
            for problem in bench.problems
            if (strategy.name, problem.hash, bench.seed) not in done
        ]
        asyncio.run(_search_all(bench, policy, executor, wanted, calls))
    except (ValueError, OSError) as error:
        raise BadUsage(str(error)) from error


async def _search_all(
    bench: Bench, policy_name: str, executor: Executor, wanted: Sequence[tuple[Strategy, Problem]], calls: int
) -> None:
    from kerneldojo.policies.registry import open_policy
    from kerneldojo.search.record import append

    policy = open_policy(policy_name)
    few = asyncio.Semaphore(NUM_SEARCHES)
    progress = Progress(
        TextColumn("searching"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
    )

    async def one(strategy: Strategy, problem: Problem) -> None:
        async with few:
            record = await _search(bench, policy, executor, strategy, problem, calls)
        if record is not None:
            append(record, bench.out / SEARCHES)
        progress.update(task, advance=1, description=strategy.name)

    try:
        with progress:
            task = progress.add_task("", total=len(wanted))
            async with asyncio.TaskGroup() as group:
                for strategy, problem in wanted:
                    group.create_task(one(strategy, problem))
    except* (ValueError, OSError) as several:
        raise several.exceptions[0] from None
    finally:
        await policy.close()


async def _search(
    bench: Bench, policy: Any, executor: Executor, strategy: Strategy, problem: Problem, calls: int
) -> SearchRecord | None:
    from kerneldojo.episodes import episode_name
    from kerneldojo.rollout import from_executor
    from kerneldojo.search import Budget, choose, search
    from kerneldojo.search.record import record_of

    judge = from_executor(executor)
    found = await search(
        problem,
        policy,
        judge,
        strategy,
        Budget(calls=calls),
        bench.config,
        seed=bench.seed,
        temperature=bench.rollout.get("temperature", 1.0),
        num_at_once=NUM_AT_ONCE,
    )
    if found.fault:
        say(f"the {strategy.name} search of {problem.name} was given up: {found.fault}")
        return None
    winner = await choose(found, judge, whole_curve=True)
    return record_of(found, winner, problem=episode_name(problem), seed=bench.seed)
