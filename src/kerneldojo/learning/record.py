"""What comes out of a run, phase by phase, and what of it lies on disk: `learn.json` in the run's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from kerneldojo.files import write_whole
from kerneldojo.learning.settings import COLLECTED, VERDICTS, LearnConfig
from kerneldojo.schema import Frozen

STATE = "learn.json"


class LearnError(ValueError):
    """A run cannot begin; one line says why."""


class Unfinished(LearnError):
    """A phase could not be ended, by no fault of whoever asked for it; one line says why."""


class Phase(Frozen):
    """What one phase took."""

    name: str
    seconds: float
    num_asked: int = 0
    """Verdicts that were asked for."""
    num_judged: int = 0
    """Of these, answers that were judged, the others having been equal to one of them."""


class Measured(Frozen):
    """One figure of one policy."""

    value: float
    low: float | None = None
    """Lower end of the 95 % interval over problems, where there is one."""
    high: float | None = None
    """Upper end."""


class Pair(Frozen):
    """One figure of both policies, on problems that neither has seen."""

    name: str
    way: Literal["greedy", "sampled"]
    before: Measured
    after: Measured


class Learned(Frozen):
    """What came out of a run, phase by phase."""

    config: LearnConfig
    phases: tuple[Phase, ...] = ()
    """Those that are done."""
    sft_steps: int = 0
    sft_loss: float | None = None
    """Mean loss a token on answers that were kept apart."""
    validation: tuple[tuple[int, float], ...] = ()
    """Greedy fast@1.2 on the validation graphs after so many steps of RL; the best is the policy *after*."""
    figures: tuple[Pair, ...] = ()
    """On the test graphs."""
    pages: tuple[str, ...] = ()
    """Reports, within the folder; none before the last phase is done."""


def known(folder: Path, config: LearnConfig) -> Learned:
    """What is on record in `folder`, or the beginning of a new record.

    Raises:
        LearnError: it is the record of another run, or none of ours, or what lies there is no part of such a run.
    """
    path = folder / STATE
    if not path.exists():
        _check_is_free(folder)
        return Learned(config=config)
    try:
        learned = Learned.model_validate_json(path.read_bytes())
    except ValueError as error:
        raise LearnError(f"{path} is not readable: give --fresh or another folder") from error
    old, new = learned.config.model_dump(), config.model_dump()
    if differing := [f"{name} was {old[name]} and is {new[name]}" for name in old if old[name] != new[name]]:
        told = ", ".join(differing)
        raise LearnError(f"{folder} holds a run with other settings ({told}): give --fresh or another folder")
    return learned


def _check_is_free(folder: Path) -> None:
    """See that a run may begin in a folder: it is empty, or a run was killed there before its first phase was done."""
    if folder.exists() and not folder.is_dir():
        raise LearnError(f"{folder} is no folder")
    inside = sorted(path.name for path in folder.glob("[!.]*"))
    if foreign := [name for name in inside if name not in (COLLECTED, VERDICTS)]:
        raise LearnError(f"{folder} holds {foreign[0]!r}, which is no part of such a run: give another folder")


def write(learned: Learned, folder: Path) -> None:
    """Put on record what is known by now, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / STATE, learned.model_dump_json(indent=1).encode() + b"\n")
