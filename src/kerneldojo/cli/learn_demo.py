"""`dojo learn`: the main job from end to end, on a laptop: a model from nothing learns to write faster kernels.

    collect    a teacher of mixed quality answers for generated graphs, and the judge says what each answer is worth
    SFT        a small model from nothing imitates all of it, good and bad as they come
    RL         it answers for the same graphs, and learns from the judge's rewards alone
    benchmark  both policies answer for graphs that neither has seen (opened here for the first time)
    report     figures, pages, and the table of what each phase took

Which checkpoint of RL counts is chosen on `graphs:validation`. One pool judges for all phases; equal answers to equal
problems are judged once, and that is what makes it fast: a small model repeats itself. Everything follows from the
seed but the seconds. A run that was killed goes on with the phase that it was in.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kerneldojo.cli.arguments import BadUsage, Device
from kerneldojo.cli.learn_setup import (
    COLLECTED,
    RL,
    SFT,
    VERDICTS,
    LearnConfig,
    Learned,
    Measured,
    Pair,
    Phase,
    graphs,
    play_config,
    rl_config,
    sft_config,
)
from kerneldojo.cli.streams import console_for, own_standard_output, say
from kerneldojo.schema import Evaluation, Job, Status

if TYPE_CHECKING:
    from kerneldojo.policies import Policy
    from kerneldojo.pool import DeviceState, Executor
    from kerneldojo.report import Figure, Metrics
    from kerneldojo.schema import Episode, Problem
    from kerneldojo.training.runs import Outcome

STATE, COMPARISON = "learn.json", "comparison.html"
RUNS: tuple[tuple[Literal["before", "after"], Literal["greedy", "sampled"], float], ...] = (
    ("before", "greedy", 0.0),
    ("after", "greedy", 0.0),
    ("before", "sampled", 1.0),
    ("after", "sampled", 1.0),
)
"""Runs of the benchmark: which policy, and at which temperature."""


def learn_command(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder of the run; one that was killed goes on.", metavar="FOLDER")
    ] = Path("runs-out/learn"),
    device: Device = "model:h100",
    seed: Annotated[int, typer.Option(min=0, help="Of everything that is drawn.")] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew, whatever an earlier run left there.")] = False,
) -> None:
    """Teach a small model from nothing: collect, SFT, RL, a held-out benchmark and reports, in minutes."""
    from kerneldojo.cli.learn_panel import learn_panel

    with own_standard_output() as output:
        learned = learn(out, device=device, seed=seed, fresh=fresh)
        console_for(output).print(learn_panel(learned, out))


def learn(
    folder: Path,
    *,
    device: str = "model:h100",
    seed: int = 0,
    fresh: bool = False,
    config: LearnConfig | None = None,
    show: bool = True,
) -> Learned:
    """Do the whole job in `folder`, or what is missing of it there; a run that is done is only looked up.

    Args:
        folder: collected answers, checkpoints, benchmark runs and reports; nothing is written elsewhere.
        device: where answers are judged.
        seed: of everything that is drawn.
        fresh: remove what an earlier run left in the folder first.
        config: sizes; its `device` and `seed` are replaced by the arguments.
        show: progress on standard error.

    Raises:
        BadUsage: the folder holds another run or cannot be written, a package is missing, a phase could not be ended;
            in one line.
        typer.Abort: somebody pressed Ctrl-C; the next call goes on.
    """
    from kerneldojo.cli.train import training_errors

    asked = (config or LearnConfig()).model_copy(update={"device": device, "seed": seed})
    with training_errors():
        if fresh:
            _clear(folder)
        run = _Learning(folder, _known(folder, asked), show=show)
        if not run.learned.pages:
            run.go()
    return run.learned


class Counting:
    """An executor that counts the different jobs that it hands on."""

    def __init__(self, inner: Executor) -> None:
        self.inner = inner
        self._seen: set[str] = set()

    @property
    def num_slots(self) -> int:
        """As the executor inside has."""
        return self.inner.num_slots

    @property
    def num_judged(self) -> int:
        """Different jobs so far."""
        return len(self._seen)

    def submit(self, job: Job) -> Future[Evaluation]:
        """Hand on; see `Executor`."""
        self._seen.add(job.hash)
        return self.inner.submit(job)

    def devices(self) -> Sequence[DeviceState]:
        """Of the executor inside."""
        return self.inner.devices()

    def close(self, *, drain: bool = True) -> None:
        """Close the executor inside."""
        self.inner.close(drain=drain)


class _Learning:
    """A run between two phases. Each phase returns how many verdicts it asked for."""

    def __init__(self, folder: Path, learned: Learned, *, show: bool) -> None:
        self.folder, self.learned, self.config, self.show = folder, learned, learned.config, show

    def go(self) -> None:
        """All phases that are not done yet, with one pool."""
        from kerneldojo.pool import PoolConfig, open_pool

        phases: tuple[tuple[str, Callable[[Counting], int]], ...] = (
            ("collect", self._collect),
            ("SFT", self._sft),
            ("RL", self._rl),
            ("benchmark", self._benchmark),
            ("report", self._report),
        )
        settings = PoolConfig(cache_folder=self.folder / VERDICTS)
        try:  # before torch is loaded here: its processes warm up meanwhile
            pool = Counting(open_pool("local", [self.config.device], config=settings))
        except (ValueError, RuntimeError) as error:
            raise BadUsage(str(error)) from error
        try:
            for name, act in phases:
                if name not in {phase.name for phase in self.learned.phases}:
                    self._take(name, act, pool)
        finally:
            pool.close(drain=False)

    def _take(self, name: str, act: Callable[[Counting], int], pool: Counting) -> None:
        """Do one phase, and put it on record."""
        if self.show:
            say(f"{name} ...")
        start, before = time.monotonic(), pool.num_judged
        asked = act(pool)
        judged = pool.num_judged - before
        phase = Phase(name=name, seconds=time.monotonic() - start, num_asked=asked, num_judged=judged)
        self._note(phases=(*self.learned.phases, phase))

    def _note(self, **changes: object) -> None:
        """Write down what is known by now, whole or not at all."""
        from kerneldojo.training.runs import replace_text

        self.learned = self.learned.model_copy(update=changes)
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_text(self.folder / STATE, self.learned.model_dump_json(indent=1) + "\n")

    def _collect(self, pool: Counting) -> int:
        from kerneldojo.policies import open_policy

        policy = open_policy("teacher:mixture")
        return self._play(policy, graphs(self.config, "train"), pool, COLLECTED, self.config.num_answers, 1.0)

    def _sft(self, pool: Counting) -> int:
        from kerneldojo.training.parallel import start_ranks
        from kerneldojo.training.sft import train_sft

        told = sft_config(self.folder, self.config)
        with _all_cores():
            _check(train_sft(told, start_ranks("cpu"), resume=True, show=self.show), "SFT")
        records = _records(told.output)
        losses = [one["validation"]["loss"] for one in records if "validation" in one]
        self._note(sft_steps=records[-1]["step"], sft_loss=losses[-1] if losses else None)
        return 0

    def _rl(self, pool: Counting) -> int:
        from kerneldojo.training.parallel import start_ranks
        from kerneldojo.training.rl import train_rl

        told = rl_config(self.folder, self.config)
        _check(train_rl(told, pool, start_ranks("cpu"), resume=True, show=self.show), "RL")  # the judge has the cores
        records = _records(told.output)
        self._note(validation=tuple((r["step"], r["evaluation"]["fast_1.2"]) for r in records if "evaluation" in r))
        return sum(record["verdicts"]["asked"] for record in records)

    def _benchmark(self, pool: Counting) -> int:
        from kerneldojo.policies.local import LocalPolicy

        models = {"before": self.folder / SFT / "model", "after": self.folder / RL / "best"}
        problems = graphs(self.config, "test")
        asked = 0
        for stage, way, temperature in RUNS:
            policy = LocalPolicy.open(str(models[stage]))
            policy.name = f"{stage} RL"
            asked += self._play(policy, problems, pool, f"{stage}-{way}", 1, temperature, policy.tokenizer)
        return asked

    def _play(
        self,
        policy: Policy,
        problems: Sequence[Problem],
        pool: Counting,
        name: str,
        num_samples: int,
        temperature: float,
        tokenizer: Any = None,
    ) -> int:
        """Play into a run folder; how many verdicts its episodes hold."""
        from kerneldojo.rollout import RolloutConfig, RunFolder, from_executor, play

        async def whole() -> list[Episode]:
            try:
                return await play(
                    problems,
                    policy,
                    from_executor(pool),
                    play_config(self.config),
                    num_samples=num_samples,
                    seed=self.config.seed,
                    folder=RunFolder(self.folder / name),
                    rollout=RolloutConfig(temperature=temperature),
                    tokenizer=tokenizer,
                    show_progress=None if self.show else False,
                )
            finally:
                await policy.close()

        episodes = asyncio.run(whole())
        last = [turn.evaluation for episode in episodes for turn in episode.turns[-1:] if turn.evaluation is not None]
        faults = sum(verdict.status is Status.INFRASTRUCTURE_ERROR for verdict in last)
        if faults:
            raise BadUsage(f"{name}: faults of ours ended {faults} of {len(episodes)} episodes; start again to go on")
        invalid = sum(verdict.status is Status.INVALID_PROBLEM for verdict in last)
        if invalid and self.show:
            say(f"{name}: {invalid} of {len(episodes)} answers are to graphs that the judge does not admit: left out")
        return sum(turn.evaluation is not None for episode in episodes for turn in episode.turns)

    def _report(self, pool: Counting) -> int:
        from kerneldojo.cli.report import PAGE, read_run, write_all
        from kerneldojo.report import MetricsConfig, compare, write_comparison

        settings = MetricsConfig(seed=self.config.seed)
        runs = {f"{stage}-{way}": read_run(self.folder / f"{stage}-{way}") for stage, way, _ in RUNS}
        metrics = {name: write_all(self.folder / name, episodes, settings) for name, episodes in runs.items()}
        names = "before RL, greedy", "after RL, greedy"
        write_comparison(
            self.folder / COMPARISON,
            compare(runs["before-greedy"], runs["after-greedy"], names=names, config=settings),
        )
        figures: list[Pair] = []
        for way in ("greedy", "sampled"):
            before, after = _measures(metrics[f"before-{way}"]), _measures(metrics[f"after-{way}"])
            figures += [Pair(name=name, way=way, before=before[name], after=after[name]) for name in before]
        pages = (COMPARISON, *(f"{name}/{PAGE}" for name in runs))
        self._note(figures=tuple(figures), pages=pages)
        return 0


def _measures(metrics: Metrics) -> dict[str, Measured]:
    """The figures of one run that the closing table shows."""
    exploits = [one.share for one in metrics.statuses if one.name == Status.EXPLOIT]
    found = {
        "correct": _measured(metrics.find("correct")),
        "fast at 1.2×": _measured(metrics.find("fast", p=1.2)),
        "mean speedup": _measured(metrics.find("speedup mean", failures="zero")),
        "exploits": Measured(value=exploits[0] if exploits else 0.0),
    }
    return {name: figure for name, figure in found.items() if figure is not None}


def _measured(figure: Figure | None) -> Measured | None:
    if figure is None or figure.value is None:
        return None
    return Measured(value=figure.value, low=figure.low, high=figure.high)


def _records(output: Path) -> list[dict[str, Any]]:
    from kerneldojo.training.journal import read_journal

    return read_journal(output / "metrics.jsonl")


def _check(outcome: Outcome, phase: str) -> None:
    """Go on only after a phase that ended as it was meant to."""
    if outcome.reason == "stopped":
        raise typer.Abort
    if not outcome.is_good:
        raise BadUsage(f"{phase} ended after {outcome.steps} steps: {outcome.reason}")


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


def _known(folder: Path, config: LearnConfig) -> Learned:
    """What is on record in `folder`, or the beginning of a new record.

    Raises:
        BadUsage: it is the record of another run, or none of ours.
    """
    path = folder / STATE
    if not path.exists():
        return Learned(config=config)
    try:
        learned = Learned.model_validate_json(path.read_bytes())
    except ValueError as error:
        raise BadUsage(f"{path} is not readable: give --fresh or another folder") from error
    if learned.config != config:
        raise BadUsage(f"{folder} holds a run with other settings: give --fresh or another folder")
    return learned


def _clear(folder: Path) -> None:
    """Remove what a run left, and nothing else."""
    for name in (COLLECTED, SFT, RL, VERDICTS, *(f"{stage}-{way}" for stage, way, _ in RUNS)):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (STATE, COMPARISON):
        (folder / name).unlink(missing_ok=True)
