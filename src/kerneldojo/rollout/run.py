"""A whole run, for programs that are not asynchronous themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from kerneldojo.episodes import PlayConfig, Tokenizer
from kerneldojo.policies import Policy
from kerneldojo.pool import Executor
from kerneldojo.rollout.against_compile import AGAINST_COMPILE, judge_against_compile
from kerneldojo.rollout.folder import RunFolder
from kerneldojo.rollout.judges import from_executor
from kerneldojo.rollout.play import DEFAULT, RolloutConfig, play
from kerneldojo.schema import Episode, Problem


def play_run(
    problems: Iterable[Problem],
    policy: Policy,
    executor: Executor,
    config: PlayConfig,
    folder: RunFolder,
    *,
    num_samples: int = 1,
    seed: int = 0,
    rollout: RolloutConfig = DEFAULT,
    tokenizer: Tokenizer | None = None,
    also_compile: bool = False,
    opened_as: dict[str, str] | None = None,
    show_progress: bool | None = None,
) -> list[Episode]:
    """Play what is missing of the run in `folder`, then close the policy.

    Args:
        problems: as for `play`.
        policy: writes the answers; it is closed, however this ends.
        executor: gives the verdicts; it is not closed.
        config: how episodes are played.
        folder: where everything is recorded.
        num_samples: attempts at each problem.
        seed: of the run.
        rollout: how answers are drawn, and how many at once.
        tokenizer: as for `play`.
        also_compile: judge what passed against torch.compile too, unless it was judged so in the first place.
        opened_as: as for `play`.
        show_progress: as for `play`.

    Returns:
        All episodes, those finished earlier included, by problem and sample.

    Raises:
        RunError: the folder is in use, was begun with other settings, is damaged, or cannot be written.
        ValueError: two problems share a name, or the executor can never serve a job.
    """
    judge = from_executor(executor)

    async def whole() -> list[Episode]:
        try:
            episodes = await play(
                problems,
                policy,
                judge,
                config,
                num_samples=num_samples,
                seed=seed,
                folder=folder,
                rollout=rollout,
                opened_as=opened_as,
                tokenizer=tokenizer,
                show_progress=show_progress,
            )
        finally:
            await policy.close()
        if also_compile and config.baseline != "compile":
            await judge_against_compile(episodes, judge, folder.path / AGAINST_COMPILE)
        return episodes

    return asyncio.run(whole())
