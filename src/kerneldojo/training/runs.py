"""What every run has beside its loop: a folder, a configuration on record, checkpoints, a way to go on.

run/config.json          what it was told (a run goes on only under the same)
run/metrics.jsonl        one line a step
run/checkpoints/         step-000010/, ...
run/lock                 held by the process that writes here
run/model -> ...         the newest weights, an ordinary Hugging Face checkpoint
run/best -> ...          RL: those that did best on the evaluation problems
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from kerneldojo.files import write_whole
from kerneldojo.rollout.lock import Lock, RunError
from kerneldojo.schema import Frozen
from kerneldojo.training.checkpoints import CheckpointError, Checkpoints
from kerneldojo.training.journal import read_journal
from kerneldojo.training.parallel import Ranks
from kerneldojo.training.settings import ConfigError

MAY_CHANGE = frozenset({"steps", "epochs", "max_seconds", "log", "keep_checkpoints", "checkpoint_every", "judge"})
"""Keys of a configuration that a run that goes on may be given anew: none of them changes a step."""

YOUNGER: dict[tuple[str, ...], Any] = {
    ("model", "residual"): "float32",
    ("model", "fused"): False,
    ("model", "compile"): False,
    ("optimizer", "fused"): False,
    ("sampling", "engine", "compile"): False,
}
"""Keys that are younger than runs which may have to go on, and what such a run was told without a word."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    steps: int
    """Steps taken over the whole run."""
    reason: str
    """`finished`, `stopped` (somebody asked) or why it could not go on."""

    @property
    def is_good(self) -> bool:
        """Whether it ended as it was meant to."""
        return self.reason in ("finished", "stopped")


@contextmanager
def open_run(
    config: Frozen, output: Path, ranks: Ranks, *, resume: bool, keep: int
) -> Generator[tuple[Checkpoints, Path | None]]:
    """Make or find the folder of a run, and have it to oneself meanwhile.

    The first rank looks and tells the others: a folder that it has just made is not an old run.

    Yields:
        Its checkpoints, and the one to go on from (None for a new run).

    Raises:
        ConfigError: another process writes there, or the folder holds a run already and `resume` is False, or a run
            with another configuration.
    """
    checkpoints = Checkpoints(output / "checkpoints", keep)
    mistake = ""
    latest: Path | None = None
    lock: Lock | None = None
    try:
        if ranks.is_first:
            try:
                lock = _lock(output)
                _open_folder(config, output, is_begun=_is_begun(output, checkpoints), resume=resume)
                checkpoints.sweep()
                latest = checkpoints.latest() if resume else None
            except ConfigError as error:
                mistake = str(error)
        mistake, latest = ranks.from_first((mistake, latest))
        if mistake:
            raise ConfigError(mistake)
        yield checkpoints, latest
    finally:
        if lock is not None:
            lock.release()


def _lock(output: Path) -> Lock:
    try:
        output.mkdir(parents=True, exist_ok=True)
        return Lock(output / "lock")
    except OSError as error:
        raise ConfigError(f"output: cannot write {output}: {error.strerror}") from error
    except RunError as error:
        raise ConfigError(f"output: {error}") from error


def _is_begun(output: Path, checkpoints: Checkpoints) -> bool:
    """Whether there is work in the folder. A run that was refused, or killed before its first step, leaves none: its
    configuration binds nobody, or a typo would lock the folder for the run that mends it."""
    journal = output / "metrics.jsonl"
    return bool(checkpoints.steps()) or (journal.exists() and bool(read_journal(journal)))


def _open_folder(config: Frozen, output: Path, *, is_begun: bool, resume: bool) -> None:
    told = config.model_dump(mode="json")
    path = output / "config.json"
    if is_begun and path.exists():
        before = _with_younger(json.loads(path.read_text("utf-8")))
        if not resume:
            raise ConfigError(
                f"output: {output} holds a run already: give --resume to go on with it, or another folder"
            )
        for key in sorted({*before, *told} - MAY_CHANGE):
            if key == "output":  # the folder is this one, however it is written, and wherever it was moved from
                continue
            if before.get(key) != told.get(key):
                raise ConfigError(f"{key}: differs from the run in {output}, which can only go on as it was")
    try:
        write_whole(path, f"{json.dumps(told, indent=2)}\n".encode())
    except OSError as error:
        raise ConfigError(f"output: cannot write {path}: {error.strerror}") from error


def _with_younger(told: dict[str, Any]) -> dict[str, Any]:
    """The configuration on record, with the keys that did not exist when it was written."""
    for (*path, last), value in YOUNGER.items():
        inner: Any = told
        for part in path:
            inner = inner.get(part) if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            cast("dict[str, Any]", inner).setdefault(last, value)
    return told


def point(link: Path, target: Path) -> None:
    """Make `link` point to `target`, from one moment to the next.

    Raises:
        CheckpointError: the disk is full, or not ours to write on. The link is what it was.
    """
    partial = link.with_name(f".{link.name}.partial-{os.getpid()}")
    try:
        partial.unlink(missing_ok=True)
        partial.symlink_to(os.path.relpath(target, link.parent))
        partial.rename(link)
    except OSError as error:
        raise CheckpointError(f"cannot let {link} point to {target}: {error.strerror}") from error
