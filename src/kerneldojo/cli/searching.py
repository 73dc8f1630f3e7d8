"""Searches beside a benchmark: the same problems, policy and judge, other ways to spend calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kerneldojo.cli.arguments import mendable
from kerneldojo.cli.streams import say

if TYPE_CHECKING:
    from pathlib import Path

    from kerneldojo.episodes import PlayConfig
    from kerneldojo.policies import Policy
    from kerneldojo.pool import Executor
    from kerneldojo.schema import Problem
    from kerneldojo.search import Found


def search_all(
    names: Sequence[str],
    problems: Sequence[Problem],
    policy: Callable[[], Policy],
    executor: Executor,
    play: PlayConfig,
    out: Path,
    *,
    calls: int,
    seed: int,
    temperature: float,
) -> None:
    """Search every problem with every strategy, but for what the run in `out` has already.

    Raises:
        BadUsage: a strategy, the policy or the file cannot be used as asked for.
    """
    from kerneldojo.rollout import from_executor
    from kerneldojo.search import Budget, many, parse_strategy
    from kerneldojo.search.record import SEARCHES

    async def search_missing() -> None:
        asked = policy()
        judge, budget = from_executor(executor), Budget(calls=calls)
        try:
            await many.search_all(
                wanted, asked, judge, budget, play, path, seed=seed, temperature=temperature, on_end=bar.ended
            )
        finally:
            await asked.close()

    with mendable(ValueError, OSError):
        path = out / SEARCHES
        wanted = many.missing(path, [parse_strategy(name) for name in names], problems, seed)
        with _Bar(len(wanted)) as bar:
            asyncio.run(search_missing())


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

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def ended(self, problem: Problem, found: Found) -> None:
        """One more."""
        if found.fault:
            say(f"the {found.strategy} search of {problem.name} was given up: {found.fault}")
        self._progress.update(self._task, advance=1, description=found.strategy)
