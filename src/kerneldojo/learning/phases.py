"""The phases of a run, each a function that returns how many verdicts it asked for.

What needs torch is imported as a phase begins: the judge's processes are started before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kerneldojo.learning.record import Unfinished
from kerneldojo.learning.run import Run, Stopped
from kerneldojo.learning.settings import COLLECTED, RL, SFT, graphs, play_config, rl_config, sft_config
from kerneldojo.rollout import RolloutConfig, RunFolder, play_run
from kerneldojo.schema import Status

if TYPE_CHECKING:
    from kerneldojo.policies import Policy
    from kerneldojo.schema import Problem
    from kerneldojo.training.runs import Outcome

COMPARISON = "comparison.html"
RUNS: tuple[tuple[Literal["before", "after"], Literal["greedy", "sampled"], float], ...] = (
    ("before", "greedy", 0.0),
    ("after", "greedy", 0.0),
    ("before", "sampled", 1.0),
    ("after", "sampled", 1.0),
)
"""Runs of the benchmark: which policy, and at which temperature."""


def collect(run: Run) -> int:
    """The teacher answers for the graphs to learn from."""
    from kerneldojo.policies import open_policy

    policy = open_policy("teacher:mixture")
    return _play(run, policy, graphs(run.config, "train"), COLLECTED, run.config.num_answers, 1.0)


def imitate(run: Run) -> int:
    """SFT on what was collected."""
    from kerneldojo.training.parallel import start_ranks
    from kerneldojo.training.sft import train_sft

    told = sft_config(run.folder, run.config)
    with _all_cores():
        _check(train_sft(told, start_ranks("cpu"), resume=True, show=run.is_shown), "SFT")
    records = _records(told.output)
    losses = [one["validation"]["loss"] for one in records if "validation" in one]
    run.note(sft_steps=records[-1]["step"], sft_loss=losses[-1] if losses else None)
    return 0


def reinforce(run: Run) -> int:
    """RL on the judge's rewards."""
    from kerneldojo.training.parallel import start_ranks
    from kerneldojo.training.rl import train_rl

    told = rl_config(run.folder, run.config)
    outcome = train_rl(told, run.pool, start_ranks("cpu"), resume=True, show=run.is_shown)  # the judge has the cores
    _check(outcome, "RL")
    records = _records(told.output)
    run.note(validation=tuple((r["step"], r["evaluation"]["fast_1.2"]) for r in records if "evaluation" in r))
    return sum(record["verdicts"]["asked"] for record in records)


def benchmark(run: Run) -> int:
    """Both policies answer for graphs that neither has seen."""
    from kerneldojo.policies.local import LocalPolicy

    models = {"before": run.folder / SFT / "model", "after": run.folder / RL / "best"}
    problems = graphs(run.config, "test")
    asked = 0
    for stage, way, temperature in RUNS:
        policy = LocalPolicy.open(str(models[stage]))
        policy.name = f"{stage} RL"
        asked += _play(run, policy, problems, f"{stage}-{way}", 1, temperature, policy.tokenizer)
    return asked


def report(run: Run) -> int:
    """Figures and pages of every run of the benchmark, and the comparison."""
    from kerneldojo.learning.figures import pairs
    from kerneldojo.report import MetricsConfig, compare, read_run, write_all, write_comparison
    from kerneldojo.report.run import PAGE

    settings = MetricsConfig(seed=run.config.seed)
    runs = {f"{stage}-{way}": read_run(run.folder / f"{stage}-{way}") for stage, way, _ in RUNS}
    metrics = {name: write_all(run.folder / name, episodes, settings) for name, episodes in runs.items()}
    names = "before RL, greedy", "after RL, greedy"
    paired = compare(runs["before-greedy"], runs["after-greedy"], names=names, config=settings)
    write_comparison(run.folder / COMPARISON, paired)
    ways: tuple[Literal["greedy", "sampled"], ...] = ("greedy", "sampled")
    figures = [pair for way in ways for pair in pairs(metrics[f"before-{way}"], metrics[f"after-{way}"], way)]
    pages = (COMPARISON, *(f"{name}/{PAGE}" for name in runs))
    run.note(figures=tuple(figures), pages=pages)
    return 0


PHASES: tuple[tuple[str, Callable[[Run], int]], ...] = (
    ("collect", collect),
    ("SFT", imitate),
    ("RL", reinforce),
    ("benchmark", benchmark),
    ("report", report),
)
"""In their order, under the names by which they are on record."""


def _play(
    run: Run,
    policy: Policy,
    problems: Sequence[Problem],
    name: str,
    num_samples: int,
    temperature: float,
    tokenizer: Any = None,
) -> int:
    """Play into a run folder; how many verdicts its episodes hold."""
    episodes = play_run(
        problems,
        policy,
        run.pool,
        play_config(run.config),
        RunFolder(run.folder / name),
        num_samples=num_samples,
        seed=run.config.seed,
        rollout=RolloutConfig(temperature=temperature),
        tokenizer=tokenizer,
        show_progress=None if run.is_shown else False,
    )
    last = [turn.evaluation for episode in episodes for turn in episode.turns[-1:] if turn.evaluation is not None]
    faults = sum(verdict.status is Status.INFRASTRUCTURE_ERROR for verdict in last)
    if faults:
        raise Unfinished(f"{name}: faults of ours ended {faults} of {len(episodes)} episodes; start again to go on")
    invalid = sum(verdict.status is Status.INVALID_PROBLEM for verdict in last)
    if invalid:
        run.say(f"{name}: {invalid} of {len(episodes)} answers are to graphs that the judge does not admit: left out")
    return sum(turn.evaluation is not None for episode in episodes for turn in episode.turns)


def _records(output: Path) -> list[dict[str, Any]]:
    from kerneldojo.training.journal import read_journal

    return read_journal(output / "metrics.jsonl")


def _check(outcome: Outcome, phase: str) -> None:
    """Go on only after a phase that ended as it was meant to."""
    if outcome.reason == "stopped":
        raise Stopped(phase)
    if not outcome.is_good:
        raise Unfinished(f"{phase} ended after {outcome.steps} steps: {outcome.reason}")


@contextmanager
def _all_cores() -> Generator[None]:
    """Let torch use every core (at most four: the matrices are small) while the judge, for whom OMP_NUM_THREADS was
    set to 1, has nothing to do. Beside other work threads that wait for one another are slower than one."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(min(4, len(os.sched_getaffinity(0))))
    try:
        yield
    finally:
        torch.set_num_threads(before)
