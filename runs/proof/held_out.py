"""A policy on problems that it was not trained on: its answers greedy and sampled, and ways of spending calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kerneldojo.episodes import PlayConfig, episode_name
from kerneldojo.policies.local import LocalConfig, LocalPolicy
from kerneldojo.pool import Executor
from kerneldojo.rollout import RolloutConfig, RunFolder, from_executor, play
from kerneldojo.schema import Episode, Problem, Status
from kerneldojo.search import Budget, choose, parse_strategy, search
from kerneldojo.search.record import SearchRecord, append, read, record_of

TRIES = 3
"""How often a run is begun again that faults of ours left unfinished."""


class Unfinished(RuntimeError):
    """Faults of ours ended some episodes, again and again."""


def answers(
    model: Path,
    problems: Sequence[Problem],
    config: PlayConfig,
    executor: Executor,
    folder: Path,
    *,
    num_samples: int,
    temperature: float,
    seed: int,
    device: str = "cpu",
) -> list[Episode]:
    """Every episode of a policy on `problems`; a `folder` that was begun is continued.

    Raises:
        Unfinished: faults of ours are left after `TRIES`.
    """

    async def once() -> list[Episode]:
        policy = LocalPolicy.open(str(model), LocalConfig(device=device))
        policy.name = model.name
        try:
            return await play(
                problems,
                policy,
                from_executor(executor),
                config,
                num_samples=num_samples,
                seed=seed,
                folder=RunFolder(folder),
                rollout=RolloutConfig(temperature=temperature),
                tokenizer=policy.tokenizer,
                show_progress=False,
            )
        finally:
            await policy.close()

    faults: list[str] = []
    for _ in range(TRIES):
        episodes = asyncio.run(once())
        faults = [_fault(episode) for episode in episodes if _fault(episode)]
        if not faults:
            return episodes
    raise Unfinished(f"{folder}: {len(faults)} episodes ended by faults of ours, the last: {faults[-1]}")


def searches(
    model: Path,
    problems: Sequence[Problem],
    config: PlayConfig,
    executor: Executor,
    path: Path,
    *,
    strategies: Sequence[str],
    calls: int,
    seed: int,
) -> list[SearchRecord]:
    """Each strategy on each problem under a budget of so many calls; those in the file `path` already are kept.

    An answer counts as its second verdict says, which is asked for with fresh seeds.
    """

    async def missing(done: set[tuple[str, str, int]]) -> None:
        policy = LocalPolicy.open(str(model), LocalConfig(device="cpu"))
        policy.name = model.name
        judge = from_executor(executor)
        gate = asyncio.Semaphore(8)

        async def one(problem: Problem, name: str) -> None:
            strategy = parse_strategy(name)
            if (strategy.name, problem.hash, seed) in done:
                return
            async with gate:
                settings: dict[str, Any] = {"seed": seed, "tokenizer": policy.tokenizer}
                found = await search(problem, policy, judge, strategy, Budget(calls=calls), config, **settings)
                if found.fault:
                    raise Unfinished(f"{problem.name}, {name}: {found.fault}")
                winner = await choose(found, judge, protocol="standard", whole_curve=True)
                append(record_of(found, winner, problem=episode_name(problem), seed=seed), path)

        try:
            async with asyncio.TaskGroup() as group:
                for problem in problems:
                    for name in strategies:
                        group.create_task(one(problem, name))
        finally:
            await policy.close()

    path.parent.mkdir(parents=True, exist_ok=True)
    asyncio.run(missing({record.key for record in read(path)}))
    return list(read(path))


def _fault(episode: Episode) -> str:
    """What of ours ended an episode; a problem that the judge does not admit is no fault, and left out later."""
    if not episode.turns or episode.finish != "fault":
        return ""
    last = episode.turns[-1]
    if last.evaluation is not None and last.evaluation.status is not Status.INFRASTRUCTURE_ERROR:
        return ""
    return last.answer.error or (last.evaluation.message if last.evaluation else "") or "unknown"
