"""The pieces of a side-by-side experiment, each of which one process does: the corpus, a start, a trial of an arm.

All of them go on where a killed process left them, and leave behind what is needed: `collected/`, `starts/seed-N/`
(a model) and `results/ARM/seed-N/` (`rows.csv`, `metrics.jsonl`, `config.json`, `searches.jsonl`, and last of all
`done.json`). What is only needed on the way is in `work/`, and goes when a trial is done.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kerneldojo.pool import Executor
from kerneldojo.schema import Episode
from kerneldojo.training.runs import Outcome
from proof.arms import SEARCHERS, START, STRATEGIES, Arm, config_of
from proof.held_out import answers, searches
from proof.machine import machine
from proof.scales import (
    COLLECTED,
    DONE,
    RESULTS,
    STARTS,
    VERDICTS,
    WORK,
    Scale,
    play_config,
    problems_of,
    sft_config,
)
from proof.tables import Row, rows_of, write_json, write_rows

GREEDY, SAMPLED = "greedy", "t=1"


class Stopped(Exception):
    """The time is over; the next call goes on."""


class Failed(RuntimeError):
    """A piece could not be done; one line says why."""


def open_judges(scale: Scale, folder: Path, num_slots: int) -> Executor:
    """A pool of this process, with the verdicts that all processes of the experiment share."""
    from kerneldojo.pool import PoolConfig, open_pool

    return open_pool("local", [scale.device], num_slots=num_slots, config=PoolConfig(cache_folder=folder / VERDICTS))


def collect(scale: Scale, folder: Path, executor: Executor) -> dict[str, Any]:
    """Have the teacher answer for the graphs of training, in one turn and in three."""
    from kerneldojo.policies.teacher import Teacher, TeacherConfig
    from kerneldojo.rollout import RunFolder, from_executor, play

    async def part(name: str, turns: int, samples: int) -> list[Episode]:
        policy = Teacher(TeacherConfig(repair=scale.repair))
        try:
            return await play(
                problems_of(scale, "train"),
                policy,
                from_executor(executor),
                play_config(scale, turns),
                num_samples=samples,
                folder=RunFolder(folder / COLLECTED / name),
                show_progress=False,
            )
        finally:
            await policy.close()

    single = asyncio.run(part("one-turn", 1, scale.num_single))
    triple = asyncio.run(part("three-turns", 3, scale.num_episodes))
    note = {
        "one turn": _statuses(single, 0),
        "three turns": [_statuses(triple, turn) for turn in range(3)],
        "digest": digest([*single, *triple]),
    }
    write_json(folder / COLLECTED / DONE, note)
    return note


def digest(corpus: Sequence[Episode]) -> str:
    """The same for equal answers to equal problems with equal statuses, in any order: SHA-256, in hexadecimal."""
    told = [
        [one.problem.hash, *([turn.answer.text, str(turn.evaluation and turn.evaluation.status)] for turn in one.turns)]
        for one in corpus
    ]
    return hashlib.sha256(json.dumps(sorted(map(json.dumps, told))).encode()).hexdigest()


def make_start(scale: Scale, folder: Path, seed: int) -> dict[str, Any]:
    """Train the model that all arms of a seed begin from.

    Raises:
        Stopped: asked to.
        Failed: SFT ended otherwise.
    """
    from kerneldojo.training.journal import read_journal
    from kerneldojo.training.parallel import start_ranks
    from kerneldojo.training.sft import train_sft

    told = sft_config(scale, folder, seed)
    _check(train_sft(told, start_ranks("cpu"), resume=True, show=False), f"SFT of seed {seed}")
    records = read_journal(told.output / "metrics.jsonl")
    losses = [record["validation"]["loss"] for record in records if "validation" in record]
    target = folder / STARTS / f"seed-{seed}"
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copytree(told.output / "model", partial)
    write_json(partial / DONE, {"steps": records[-1]["step"], "loss": losses[-1] if losses else None})
    partial.rename(target)
    shutil.rmtree(told.output)
    return {"steps": records[-1]["step"], "loss": losses[-1] if losses else None}


def run_trial(scale: Scale, folder: Path, arm: Arm, seed: int, executor: Executor) -> dict[str, Any]:
    """Train one arm from one start, and measure it on the test graphs, which are opened here.

    Raises:
        Stopped: asked to.
        Failed: RL ended otherwise.
    """
    began = time.time()
    result = folder / RESULTS / arm.name / f"seed-{seed}"
    work = folder / WORK / arm.name / f"seed-{seed}"
    model = folder / STARTS / f"seed-{seed}"
    if arm.name != START:
        model = _trained(scale, folder, arm, seed, executor, result)
    rows: list[Row] = []
    for way, temperature, samples in ((GREEDY, 0.0, 1), (SAMPLED, 1.0, scale.test_samples)):
        config = play_config(scale, arm.eval_turns)
        test = problems_of(scale, "test")
        place = work / f"test-{way}"
        kept = {"num_samples": samples, "temperature": temperature, "seed": seed}
        rows += rows_of(answers(model, test, config, executor, place, **kept), arm=arm.name, seed=seed, way=way)
    if arm.name in SEARCHERS and scale.search_problems:
        told = {"strategies": STRATEGIES, "calls": scale.search_calls, "seed": seed}
        path = work / "searches.jsonl"
        searches(model, problems_of(scale, "search"), play_config(scale, 3), executor, path, **told)
        result.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, result / "searches.jsonl")
    write_rows(result / "rows.csv", rows)
    note = {"arm": arm.name, "seed": seed, "began": began, "ended": time.time(), **brief(rows), "machine": machine()}
    write_json(result / DONE, note)
    shutil.rmtree(work, ignore_errors=True)
    return note


def _trained(scale: Scale, folder: Path, arm: Arm, seed: int, executor: Executor, result: Path) -> Path:
    """The policy after the last step of RL; the log is kept beside the results."""
    from kerneldojo.training.parallel import start_ranks
    from kerneldojo.training.rl import train_rl

    told = config_of(arm, scale, folder, seed)
    _check(train_rl(told, executor, start_ranks("cpu"), resume=True, show=False), f"{arm.name}, seed {seed}")
    result.mkdir(parents=True, exist_ok=True)
    for name in ("metrics.jsonl", "config.json"):
        shutil.copy(told.output / name, result / name)
    return told.output / "model"


def brief(rows: Sequence[Row]) -> dict[str, float]:
    """Shares of the sampled answers of the last turn, for the eye."""
    sampled = [row for row in rows if row.way == SAMPLED]
    last = max((row.turn for row in sampled), default=0)
    chosen = [row for row in sampled if row.turn == last]
    count = max(1, len(chosen))
    return {
        "correct": sum(row.correct for row in chosen) / count,
        "fast@1.2": sum((row.speedup or 0) > 1.2 for row in chosen) / count,
        "exploits": sum(row.status == "exploit" for row in chosen) / count,
    }


def _statuses(episodes: Sequence[Episode], turn: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in rows_of(episodes, arm="", seed=0, way=""):
        if row.turn == turn:
            found[row.status] = found.get(row.status, 0) + 1
    return dict(sorted(found.items()))


def _check(outcome: Outcome, what: str) -> None:
    if outcome.reason == "stopped":
        raise Stopped
    if not outcome.is_good:
        raise Failed(f"{what} ended after {outcome.steps} steps: {outcome.reason}")
