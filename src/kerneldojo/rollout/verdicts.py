"""Verdicts for a run: equal answers are judged once, and faults of ours are tried again.

A policy that learns repeats itself, and one that is measured at temperature 0 does nothing else. Equal jobs have equal
verdicts by definition (`Job.hash`), so the second one waits for the first one's instead of taking a device from others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from kerneldojo.episodes import job_for
from kerneldojo.rollout.judges import AsyncJudge
from kerneldojo.schema import Episode, Evaluation, Job, Status


class Verdicts:
    """The verdicts of one run."""

    def __init__(self, judge: AsyncJudge, num_retries: int, delay: float) -> None:
        """Ask `judge`; after a fault of ours `num_retries` times more, first after `delay` seconds, then doubled."""
        self._judge, self._num_retries, self._delay = judge, num_retries, delay
        self._known: dict[str, Evaluation] = {}
        self._asked: dict[str, asyncio.Task[Evaluation]] = {}

    def learn(self, episodes: Iterable[Episode]) -> None:
        """Take over the verdicts that episodes hold, but for those that are faults of ours."""
        for episode in episodes:
            for turn in episode.turns:
                job = job_for(episode, turn.answer) if turn.evaluation is not None else None
                if job is not None and turn.evaluation is not None:
                    self._keep(job, turn.evaluation)

    async def of(self, job: Job) -> Evaluation:
        """The verdict on `job`; `infrastructure_error` only after all retries. Raises what the judge raises."""
        key = job.hash
        if key in self._known:
            return self._known[key]
        if key not in self._asked:
            self._asked[key] = asyncio.create_task(self._fetch(job))
        try:
            evaluation = await self._asked[key]
        finally:
            self._asked.pop(key, None)
        self._keep(job, evaluation)
        return evaluation

    def _keep(self, job: Job, evaluation: Evaluation) -> None:
        if evaluation.status is not Status.INFRASTRUCTURE_ERROR:
            self._known[job.hash] = evaluation

    async def _fetch(self, job: Job) -> Evaluation:
        delay = self._delay
        for _ in range(self._num_retries):
            evaluation = await self._judge(job)
            if evaluation.status is not Status.INFRASTRUCTURE_ERROR:
                return evaluation
            await asyncio.sleep(delay)
            delay *= 2
        return await self._judge(job)
