"""All phases, one after the other, or what is missing of them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from kerneldojo.learning.counting import Counting
from kerneldojo.learning.phases import COMPARISON, PHASES, RUNS
from kerneldojo.learning.record import STATE, Learned, LearnError, Phase, known
from kerneldojo.learning.run import Run
from kerneldojo.learning.settings import COLLECTED, RL, SFT, VERDICTS, LearnConfig
from kerneldojo.pool import PoolConfig, open_pool


def learn(
    folder: Path,
    config: LearnConfig | None = None,
    *,
    fresh: bool = False,
    tell: Callable[[str], None] | None = None,
) -> Learned:
    """Do the whole job in `folder`, or what is missing of it there; a run that is done is only looked up.

    Args:
        folder: collected answers, checkpoints, benchmark runs and reports; nothing is written elsewhere.
        config: sizes, device and seed.
        fresh: remove what an earlier run left in the folder first.
        tell: told which phase begins; the phases show their progress on standard error then. None for silence.

    Raises:
        LearnError: the folder holds another run, or there is no such device.
        Unfinished: a phase could not be ended; the next call goes on.
        Stopped: somebody asked training to stop; the next call goes on.
        RunError, training's errors, OSError: a phase cannot read or write its files.
    """
    config = config or LearnConfig()
    if config.device == "cpu":  # RL would refuse it, after all that comes before
        raise LearnError("device 'cpu' has neither times nor a profile to learn from: use a model: device or a GPU")
    if fresh:
        _clear(folder)
    learned = known(folder, config)
    return learned if learned.pages else _go(folder, learned, tell)


def _go(folder: Path, learned: Learned, tell: Callable[[str], None] | None) -> Learned:
    """All phases that are not done yet, with one pool."""
    settings = PoolConfig(cache_folder=folder / VERDICTS)
    try:  # before torch is loaded here: its processes warm up meanwhile
        pool = Counting(open_pool("local", [learned.config.device], config=settings))
    except (ValueError, RuntimeError) as error:
        raise LearnError(str(error)) from error
    run = Run(folder, learned, pool, tell)
    try:
        run.note()  # so that whoever goes on after a kill is held to these settings from the first phase on
        for name, act in PHASES:
            if name not in {phase.name for phase in run.learned.phases}:
                _take(run, name, act)
    finally:
        pool.close(drain=False)
    return run.learned


def _take(run: Run, name: str, act: Callable[[Run], int]) -> None:
    """Do one phase, and put it on record."""
    run.say(f"{name} ...")
    start, before = time.monotonic(), run.pool.num_judged
    asked = act(run)
    judged = run.pool.num_judged - before
    phase = Phase(name=name, seconds=time.monotonic() - start, num_asked=asked, num_judged=judged)
    run.note(phases=(*run.learned.phases, phase))


def _clear(folder: Path) -> None:
    """Remove what a run left, and nothing else."""
    for name in (COLLECTED, SFT, RL, VERDICTS, *(f"{stage}-{way}" for stage, way, _ in RUNS)):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (STATE, COMPARISON):
        (folder / name).unlink(missing_ok=True)
