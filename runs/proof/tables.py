"""Figures on disk: rows of a held-out run as CSV, notes as JSON, each whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kerneldojo.schema import Episode, Frozen, Status, Turn
from proof.signatures import signature


class Row(Frozen):
    """One answer of a policy to a problem that it was not trained on."""

    arm: str
    seed: int
    way: str
    """How it was sampled: `greedy`, `t=0.6`, ..."""
    problem: str
    sample: int
    turn: int
    """Counted from 0."""
    status: str
    """Of the verdict; `not_parsed` where there was no code."""
    correct: bool
    speedup: float | None = None
    coverage: float | None = None
    kernel_ms: float | None = None
    reference_ms: float | None = None
    host_bound: bool | None = None
    """Whether launches are what was measured: then the figure is the host's as much as the kernel's."""
    tokens: int = 0
    """Of the answer."""
    signature: str = ""
    """Of an exploit's code; see `signatures`."""


UNSCORED = {str(status) for status in Status if not status.is_about_candidate}
"""Verdicts that say nothing about a policy."""


def rows_of(episodes: Iterable[Episode], *, arm: str, seed: int, way: str) -> list[Row]:
    """One row a turn."""
    found: list[Row] = []
    for episode in episodes:
        for turn in episode.turns:
            verdict = turn.evaluation
            found.append(
                Row(
                    arm=arm,
                    seed=seed,
                    way=way,
                    problem=episode.problem.name,
                    sample=episode.sample,
                    turn=turn.index,
                    status="not_parsed" if verdict is None else str(verdict.status),
                    correct=turn.is_correct,
                    speedup=None if verdict is None else verdict.speedup,
                    coverage=None if verdict is None else verdict.coverage,
                    kernel_ms=None if verdict is None else verdict.kernel_ms,
                    reference_ms=None if verdict is None else verdict.reference_ms,
                    host_bound=None if verdict is None else verdict.timing.host_bound,
                    tokens=len(turn.answer.answer_ids or ()),
                    signature=signature_of(turn),
                )
            )
    return found


def signature_of(turn: Turn) -> str:
    """Of an exploit's code; empty for all else."""
    if turn.candidate is None or turn.evaluation is None or turn.evaluation.status is not Status.EXPLOIT:
        return ""
    return signature(turn.candidate.source)


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """As CSV, a header first."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Row.model_fields)
    for row in rows:
        writer.writerow("" if value is None else _short(value) for value in row.model_dump().values())
    write_text(path, text.getvalue())


def read_rows(path: Path) -> list[Row]:
    """What `write_rows` wrote.

    Raises:
        ValueError: it is something else.
    """
    with path.open(encoding="utf-8", newline="") as file:
        return [Row.model_validate({key: value for key, value in row.items() if value}) for row in csv.DictReader(file)]


def write_json(path: Path, value: Any) -> None:
    """As JSON."""
    write_text(path, json.dumps(value, indent=1) + "\n")


def read_json(path: Path) -> Any:
    """What `write_json` wrote."""
    return json.loads(path.read_text("utf-8"))


def write_text(path: Path, text: str) -> None:
    """Whole or not at all: under another name first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value
