"""Searches of many problems by several strategies, beside a run: each is done once, and its record kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from kerneldojo.episodes import PlayConfig, episode_name
from kerneldojo.policies import Policy
from kerneldojo.rollout.folder import LOCK
from kerneldojo.rollout.judges import AsyncJudge
from kerneldojo.rollout.lock import Lock
from kerneldojo.rollout.together import all_of
from kerneldojo.schema import Problem
from kerneldojo.search.budget import Budget
from kerneldojo.search.record import append, read, record_of
from kerneldojo.search.selection import choose
from kerneldojo.search.spending import Found, search
from kerneldojo.search.strategies import Strategy

NUM_AT_ONCE = 4
"""Answers of one search under way at most: the more there are, the later a strategy hears of its verdicts."""
NUM_SEARCHES = 8
"""Searches under way at once; they do not know of each other."""

Wanted = tuple[Strategy, Problem]
"""One search: which strategy, which problem."""


def missing(
    path: Path, strategies: Sequence[Strategy], problems: Sequence[Problem], seed: int, budget: Budget
) -> list[Wanted]:
    """Searches of which `path` has no record yet.

    Raises:
        ValueError: the file holds something else, or one of these strategies under another budget (in one line).
    """
    names = {strategy.name for strategy in strategies}
    records = list(read(path))
    for record in records:
        if record.strategy in names and record.budget != budget:
            words = f"{record.strategy} searches with {record.budget.words}, not {budget.words}"
            raise ValueError(f"{path} holds {words}: ask for the same budget, or choose another folder")
    done = {record.key for record in records}
    return [
        (strategy, problem)
        for strategy in strategies
        for problem in problems
        if (strategy.name, problem.hash, seed) not in done
    ]


async def search_all(
    wanted: Sequence[Wanted],
    policy: Policy,
    judge: AsyncJudge,
    budget: Budget,
    config: PlayConfig,
    path: Path,
    *,
    seed: int = 0,
    temperature: float = 1.0,
    top_p: float = 1.0,
    on_end: Callable[[Problem, Found], None] | None = None,
) -> None:
    """Search them all, a few at once; each whose budget was spent is appended to `path` as it ends.

    The run's folder is held meanwhile, and what another process has searched since `missing` looked is left out.

    Args:
        wanted: strategies and problems.
        policy: writes the answers; it is not closed.
        judge: gives the verdicts.
        budget: of each search.
        config: how prompts are made and answers judged.
        path: records are appended to it.
        seed: of everything that is drawn.
        temperature: of the policy's sampling.
        top_p: of the policy's sampling.
        on_end: called after each search, also one that was given up (`Found.fault`) and has no record, because the
            policy or the judge is down, or what won could not be judged again. One that was refused
            (`Found.refused`) has one that says so.

    Raises:
        OSError: a record cannot be written.
        ValueError: the judge can never serve a job, or another process writes to the folder (`RunError`).
    """
    few = asyncio.Semaphore(NUM_SEARCHES)

    async def one(strategy: Strategy, problem: Problem) -> None:
        async with few:
            found = await search(
                problem,
                policy,
                judge,
                strategy,
                budget,
                config,
                seed=seed,
                temperature=temperature,
                top_p=top_p,
                num_at_once=NUM_AT_ONCE,
            )
            winner = None if found.fault else await choose(found, judge, whole_curve=True)
        if winner is not None and winner.fault:
            found.fault = winner.fault
        elif winner is not None:
            append(record_of(found, winner, problem=episode_name(problem), seed=seed), path)
        if on_end is not None:
            on_end(problem, found)

    lock = Lock(path.with_name(LOCK))
    try:
        done = {record.key for record in read(path)}
        left = [(strategy, problem) for strategy, problem in wanted if (strategy.name, problem.hash, seed) not in done]
        await all_of(one(strategy, problem) for strategy, problem in left)
    finally:
        lock.release()
