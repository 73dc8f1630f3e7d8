"""A second figure for what passed: the same answers judged against `torch.compile`, beside the run that found them.

against-compile.jsonl      one `schema.Evaluation` a line, known by the hashes of its problem and its candidate
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from kerneldojo.episodes import job_for
from kerneldojo.files import Journal, read_lines
from kerneldojo.rollout.folder import LOCK
from kerneldojo.rollout.judges import AsyncJudge
from kerneldojo.rollout.lock import Lock, RunError
from kerneldojo.rollout.together import all_of
from kerneldojo.schema import Episode, Evaluation, Job

AGAINST_COMPILE = "against-compile.jsonl"
"""File of a run folder."""

Key = tuple[str, str]
"""Hashes of a problem and a candidate."""


def read_verdicts(path: Path) -> dict[Key, Evaluation]:
    """Verdicts against another baseline, by problem and candidate; an unfinished last line is not one.

    Raises:
        RunError: another line is no verdict.
    """
    verdicts: dict[Key, Evaluation] = {}
    for number, line in read_lines(path):
        try:
            verdict = Evaluation.model_validate_json(line)
        except ValidationError as error:
            raise RunError(f"{path}: line {number} is no verdict") from error
        verdicts[verdict.problem_hash, verdict.candidate_hash] = verdict
    return verdicts


async def judge_against_compile(episodes: Sequence[Episode], judge: AsyncJudge, path: Path) -> None:
    """Judge each distinct answer that passed once more, against torch.compile; verdicts are on disk as they come.

    Faults of ours or of the device are not put on record, so that a later run asks again.

    Raises:
        RunError: the file holds something else, or cannot be written, or another process writes to its folder.
    """
    try:
        lock = Lock(path.with_name(LOCK))
        try:
            await _judge_missing(episodes, judge, path)
        finally:
            lock.release()
    except OSError as error:
        raise RunError(f"{path}: {error.strerror or error}") from error


async def _judge_missing(episodes: Sequence[Episode], judge: AsyncJudge, path: Path) -> None:
    jobs = _missing(episodes, set(read_verdicts(path)))
    if not jobs:
        return

    async def one(key: Key, job: Job) -> None:
        found = await judge(job)
        if found.status.is_about_candidate:
            found = found.model_copy(update={"problem_hash": key[0], "candidate_hash": key[1]})
            await asyncio.wrap_future(journal.append(0, found.model_dump_json(round_trip=True).encode()))

    journal = Journal([path])
    try:
        await all_of(one(key, job) for key, job in jobs.items())
    finally:
        journal.close()


def _missing(episodes: Sequence[Episode], known: set[Key]) -> dict[Key, Job]:
    jobs: dict[Key, Job] = {}
    for episode in episodes:
        for turn in episode.turns:
            job = job_for(episode, turn.answer) if turn.is_correct else None
            if job is not None and (job.problem.hash, job.candidate.hash) not in known:
                jobs[job.problem.hash, job.candidate.hash] = job.model_copy(update={"baseline": "compile"})
    return jobs
