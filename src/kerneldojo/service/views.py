"""From rows of the store to what travels. Verdicts and jobs are JSON on disk and are passed on as they are."""

from __future__ import annotations

import sqlite3
from typing import Any

from kerneldojo.service.reader import Reader
from kerneldojo.service.records import PRIORITIES, TaskState, TaskSummary


def summary_of(row: sqlite3.Row) -> TaskSummary:
    """The row as a summary."""
    values: dict[str, Any] = dict(row)
    values["priority"] = PRIORITIES[values["priority"]]
    values["state"] = TaskState(values["state"])
    values["expired"] = bool(values["expired"])
    return TaskSummary.model_validate(values)


def record_json(reader: Reader, row: sqlite3.Row, *, with_job: bool, position: int | None = None) -> str:
    """A `TaskRecord` as JSON: its summary, the stored verdict, and the stored job where it is wanted."""
    summary = summary_of(row)
    evaluation = reader.evaluation(summary.sequence) if summary.state is TaskState.DONE else None
    job = reader.job(summary.sequence) if with_job else None
    place = "null" if position is None else str(position)
    texts = f'"queue_position":{place},"evaluation":{evaluation or "null"},"job":{job or "null"}'
    return f"{summary.model_dump_json()[:-1]},{texts}}}"
