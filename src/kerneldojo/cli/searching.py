"""Searches beside a benchmark: the same problems, policy and judge, other ways to spend calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kerneldojo.cli.arguments import BadUsage, mendable
from kerneldojo.cli.streams import say
from kerneldojo.cli.text import one_line

if TYPE_CHECKING:
    from pathlib import Path

    from kerneldojo.episodes import PlayConfig
    from kerneldojo.policies import Policy
    from kerneldojo.pool import Executor
    from kerneldojo.schema import Problem
    from kerneldojo.search import Budget, Found
    from kerneldojo.search.many import Wanted

DEFAULT_CALLS = 16
"""Answers of each search that nothing else bounds."""


@dataclass(frozen=True)
class Plan:
    """Which searches are missing, checked before anything is played."""

    wanted: Sequence[Wanted]
    budget: Budget
    path: Path


def plan(
    names: Sequence[str], limits: dict[str, int | None], problems: Sequence[Problem], out: Path, seed: int
) -> Plan:
    """Every problem with every strategy, but for what the run in `out` has already.

    Args:
        names: of the strategies; there may be none.
        limits: what each search may spend, by `calls`, `verdicts` and `tokens`; without any, 16 calls.
        problems: to be searched.
        out: the run folder.
        seed: of the searches.

    Raises:
        BadUsage: a strategy is unknown, limits are for no strategy, or the folder's searches had others.
    """
    from kerneldojo.search import Budget, many, parse_strategy
    from kerneldojo.search.record import SEARCHES

    given = {name: limit for name, limit in limits.items() if limit is not None}
    if given and not names:
        raise BadUsage(f"--{next(iter(given))} bounds the searches of --strategy, and none was named")
    with mendable(ValueError, OSError):
        path, budget = out / SEARCHES, Budget(**{"calls": None if given else DEFAULT_CALLS, **given})
        strategies = list({one.name: one for one in map(parse_strategy, names)}.values())
        return Plan(many.missing(path, strategies, problems, seed, budget), budget, path)


def search_all(
    asked: Plan,
    policy: Callable[[], Policy],
    executor: Executor,
    play: PlayConfig,
    *,
    seed: int,
    temperature: float,
    top_p: float,
) -> int:
    """Carry out the searches of a plan.

    Returns:
        How many were given up for faults of ours; the next run of the folder makes them.

    Raises:
        BadUsage: the policy or the file cannot be used as asked for.
    """
    from kerneldojo.rollout import from_executor
    from kerneldojo.search import many

    async def search_missing() -> None:
        writer, judge = policy(), from_executor(executor)
        settings: dict[str, Any] = {"seed": seed, "temperature": temperature, "top_p": top_p, "on_end": bar.ended}
        try:
            await many.search_all(asked.wanted, writer, judge, asked.budget, play, asked.path, **settings)
        finally:
            await writer.close()

    if not asked.wanted:
        return 0
    bar = _Bar(len(asked.wanted))
    with mendable(ValueError, OSError), bar:
        asyncio.run(search_missing())
    return bar.num_given_up


class _Bar:
    """Searches that have ended, on standard error; a line for each that was given up."""

    def __init__(self, total: int) -> None:
        self._progress = Progress(
            TextColumn("searching"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task("", total=total)
        self.num_given_up = 0

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def ended(self, problem: Problem, found: Found) -> None:
        """One more."""
        if found.fault:
            self.num_given_up += 1
            say(f"the {found.strategy} search of {problem.name} was given up: {one_line(found.fault)}")
        self._progress.update(self._task, advance=1, description=found.strategy)
