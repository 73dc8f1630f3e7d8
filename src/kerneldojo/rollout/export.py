"""A run as a table: one row a turn, in Parquet, for whatever reads tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kerneldojo.rollout.parquet import VERDICT_COLUMNS, write_rows
from kerneldojo.schema import Episode, Turn

TABLE = "turns.parquet"
"""File of a run folder."""


def export(episodes: Iterable[Episode], path: Path) -> int:
    """Write the turns of `episodes` to the Parquet file `path`, replacing it in one piece.

    Returns:
        The number of rows.

    Raises:
        RunError: pyarrow is not installed, or the file cannot be written.
    """
    return write_rows((row(episode, turn) for episode in episodes for turn in episode.turns), COLUMNS, path)


def write_table(episodes: Iterable[Episode], folder: Path) -> Path | None:
    """Write the table of a run into its folder, where pyarrow is installed.

    Returns:
        The file; None without pyarrow, for a table is a convenience and the run is whole without it.

    Raises:
        RunError: the file cannot be written.
    """
    if find_spec("pyarrow") is None:
        return None
    export(episodes, folder / TABLE)
    return folder / TABLE


COLUMNS = {
    "episode": "string",
    "problem": "string",
    "suite": "string",
    "level": "int32",
    "problem_hash": "string",
    "sample": "int32",
    "language": "string",
    "device": "string",
    "policy": "string",
    "seed": "int64",
    "finish": "string",
    "turn": "int32",
    "answer": "string",
    "answer_finish": "string",
    "version": "int64",
    "prompt_tokens": "int64",
    "answer_tokens": "int64",
    "seconds": "double",
    "dollars": "double",
    "prompt_ids": "list<int32>",
    "answer_ids": "list<int32>",
    "log_probs": "list<double>",
    "code": "string",
    "feedback": "string",
    "reward": "double",
    "plan_reward": "double",
    "code_reward": "double",
    **VERDICT_COLUMNS,
    "max_error": "double",
    "message": "string",
    "exploits": "list<string>",
}
"""Columns and their types; what a turn does not have is null."""


def row(episode: Episode, turn: Turn) -> dict[str, Any]:
    """One turn as a row of `COLUMNS`."""
    return dict(zip(COLUMNS, (*_of_episode(episode), *_of_turn(turn), *_of_verdict(turn)), strict=True))


def _of_episode(episode: Episode) -> Iterator[Any]:
    problem = episode.problem
    yield from (episode.id, problem.name, problem.suite, problem.level, problem.hash)
    yield from (episode.sample, episode.language, episode.device, episode.policy, episode.seed, episode.finish)


def _of_turn(turn: Turn) -> Iterator[Any]:
    answer = turn.answer
    yield from (turn.index, answer.text, answer.finish, answer.version)
    yield from (answer.usage.prompt_tokens, answer.usage.answer_tokens, answer.usage.seconds, answer.usage.dollars)
    yield from (answer.prompt_ids, answer.answer_ids, answer.log_probs)
    yield from (turn.candidate.source if turn.candidate else None, turn.feedback)
    yield from (turn.reward, turn.plan_reward, turn.code_reward)


def _of_verdict(turn: Turn) -> Iterator[Any]:
    verdict = turn.evaluation
    if verdict is None:
        yield from [None] * 10
        return
    yield from (verdict.status.value, verdict.correct, verdict.speedup, verdict.coverage, verdict.kernel_ms)
    yield from (verdict.reference_ms, verdict.timing.source, verdict.max_error, verdict.message)
    yield [exploit.name for exploit in verdict.exploits]
