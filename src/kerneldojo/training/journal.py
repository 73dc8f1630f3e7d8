"""The journal of a run: one JSON line a step, and the same numbers in TensorBoard (and wandb or trackio, if asked).

`metrics.jsonl` is the truth; the others are pictures of it. Each step is in it exactly once: when a run goes on from a
checkpoint, lines of later steps (which will be played again) and a line that a killed process left torn are taken out
first. Durations stand apart under `seconds`: all else repeats when a run is repeated with the same verdicts, but for
`verdicts.judged`, for a process that goes on has forgotten which answers were equal.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import secrets
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from kerneldojo.files import write_whole
from kerneldojo.schema import Settings
from kerneldojo.schema.finite import finite

if TYPE_CHECKING:
    from kerneldojo.training.curves import Curves


class LogConfig(Settings):
    """Where numbers go beside `metrics.jsonl`."""

    tensorboard: bool = True
    """Event files in the run's folder."""
    tracker: Literal["wandb", "trackio"] | None = None
    """A service to send them to as well; its package must be installed."""
    project: str = "kerneldojo"
    """Project name at the tracker."""


class JournalError(RuntimeError):
    """The journal cannot be written, so that the run would go on unrecorded; one line says why."""


@contextmanager
def _writing(path: Path) -> Generator[None]:
    """Name what could not be written: of two files on a full disk either may be the first."""
    try:
        yield
    except OSError as error:
        raise JournalError(f"cannot write {path}: {error.strerror or error}") from error


class Journal:
    """Appends records and passes them on."""

    def __init__(self, folder: Path, config: LogConfig, settings: dict[str, Any], after_step: int = 0) -> None:
        """Open the journal of the run in `folder`, of which steps up to `after_step` have happened.

        Raises:
            JournalError: the folder cannot be written, or the tracker's package is missing.
        """
        self.path, self._pictures = folder / "metrics.jsonl", folder / "tensorboard"
        with _writing(self.path):
            folder.mkdir(parents=True, exist_ok=True)
            _keep_until(self.path, after_step)
            self._file = self.path.open("a", encoding="utf-8")
        self._curves: Curves | None = None
        if config.tensorboard:
            from kerneldojo.training.curves import Curves  # takes half a second, which not everybody needs

            with _writing(self._pictures):
                self._curves = Curves(self._pictures, after_step + 1)
        self._tracker = _start_tracker(config, folder, settings) if config.tracker else None

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record, with its `step` and whatever else; on disk when this returns.

        Raises:
            JournalError: it could not be written.
        """
        with _writing(self.path):
            self._file.write(json.dumps(finite(dict(record)), allow_nan=False) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        scalars, step = dict(scalars_of(record)), int(record.get("step", 0))
        if self._curves is not None:
            with _writing(self._pictures):
                self._curves.add(step, scalars)
        if self._tracker is not None:
            self._tracker.log(scalars, step=step)

    def close(self) -> None:
        """Flush and let go.

        Raises:
            JournalError: what `write` could not write cannot be written now either.
        """
        try:
            with _writing(self.path):
                self._file.close()
            if self._curves is not None:
                with _writing(self._pictures):
                    self._curves.close()
        finally:
            if self._tracker is not None:
                self._tracker.finish()


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The records of a `metrics.jsonl`; a torn last line is left out."""
    records: list[dict[str, Any]] = []
    for line in path.read_text("utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return records


def _keep_until(path: Path, step: int) -> None:
    """Rewrite the file without later steps, whole or not at all."""
    if not path.exists():
        return
    kept = [record for record in read_journal(path) if record.get("step", 0) <= step]
    write_whole(path, "".join(json.dumps(record, allow_nan=False) + "\n" for record in kept).encode())


def scalars_of(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of a record under the names of their curves.

    An evaluation has a record of its own beside that of the step before it, under the same step. What both count
    (verdicts, seconds) would be two values of one curve, so all of an evaluation's names begin with `evaluation/`.
    """
    own = {key: value for key, value in record.items() if key != "step"}
    if "evaluation" in own:
        own = {"evaluation": {**own.pop("evaluation"), **own}}
    yield from _scalars(own)


def _scalars(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from _scalars(cast("Mapping[str, Any]", value), f"{prefix}{key}/")
        elif isinstance(value, int | float) and math.isfinite(value):
            yield f"{prefix}{key}", float(value)


def _tracker_mark(folder: Path) -> str:
    """What a run that goes on is known by at the tracker, kept in its folder.

    The folder's name is not enough: recipes call theirs `rl` and `sft`, and runs of one name would be taken for one.

    Raises:
        JournalError: it cannot be kept.
    """
    path = folder / "tracker"
    with _writing(path):
        if not path.exists():
            write_whole(path, secrets.token_hex(4).encode())
        return path.read_text("utf-8").strip()


def tracker_of(config: LogConfig) -> Any:
    """The tracker's package (None where no tracker is asked for); asked before a model is opened, which takes longer.

    Raises:
        JournalError: it is not installed.
    """
    if config.tracker is None:
        return None
    try:
        return importlib.import_module(config.tracker)
    except ImportError as error:
        raise JournalError(f"log.tracker: {config.tracker} is not installed") from error


def _start_tracker(config: LogConfig, folder: Path, settings: dict[str, Any]) -> Any:
    module = tracker_of(config)
    mark, place = _tracker_mark(folder), folder.resolve()
    # wandb knows a run again by its id, trackio by its name.
    options = {"project": config.project, "name": f"{place.parent.name}-{place.name}-{mark}", "config": settings}
    options["resume"] = "allow"
    if config.tracker == "wandb":
        options["id"] = mark
    return module.init(**options)
