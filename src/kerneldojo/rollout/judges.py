"""Judges as rollouts see them: a job goes in, a verdict is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from kerneldojo.pool import Executor
from kerneldojo.schema import Evaluation, Job

AsyncJudge = Callable[[Job], Awaitable[Evaluation]]
"""What `play` asks for verdicts; many calls may be under way at once."""


def from_executor(executor: Executor) -> AsyncJudge:
    """Verdicts of a pool on this machine or many, or of a service elsewhere (`kerneldojo.Client`).

    The judge raises what `Executor.submit` raises: `ValueError` for a job that no device of it can ever serve.
    """

    async def judged(job: Job) -> Evaluation:
        return await asyncio.wrap_future(executor.submit(job))

    return judged


def from_function(judge: Callable[[Job], Evaluation], *, num_threads: int = 1) -> AsyncJudge:
    """Verdicts of an ordinary function, which is called from `num_threads` threads of its own."""
    threads = ThreadPoolExecutor(num_threads, thread_name_prefix="judge")

    async def judged(job: Job) -> Evaluation:
        return await asyncio.get_running_loop().run_in_executor(threads, judge, job)

    return judged
