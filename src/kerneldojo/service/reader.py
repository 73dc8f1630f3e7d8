"""Questions to the store, of which every thread that asks has a connection of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any

from kerneldojo.service.queue import Entry
from kerneldojo.service.records import TaskState

SUMMARY = (
    "id, sequence, state, client, priority, problem, device, submitted_at, started_at, finished_at, deadline_at, "
    "attempts, expired, status, speedup, coverage, kernel_ms, reference_ms, roofline_fraction, timing_source, "
    "baseline, judged_on"
)
"""Columns of `records.TaskSummary`."""


def _in_state(state: TaskState) -> str:
    """The condition that a task is in a state.

    With the words of the indexes of those that are few: where they are missing, SQLite reads all tasks that there are.
    """
    words = f"state = '{state}'"
    return words if state.is_terminal else f"{words} AND state IN ('queued', 'running')"


class Reader:
    """Each question is one short statement: it may be asked from an event loop."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def summary(self, task_id: str) -> sqlite3.Row | None:
        """The columns of one task's summary."""
        return self._connection.execute(f"SELECT {SUMMARY} FROM tasks WHERE id = ?", (task_id,)).fetchone()

    def states(self, task_ids: Iterable[str], client: str | None = None) -> dict[str, TaskState]:
        """States of those tasks that exist, and belong to `client` if one is given."""
        statement = "SELECT state FROM tasks WHERE id = ? AND client = coalesce(?, client)"
        rows = ((task_id, self._connection.execute(statement, (task_id, client)).fetchone()) for task_id in task_ids)
        return {task_id: TaskState(row[0]) for task_id, row in rows if row is not None}

    def content(self, task_id: str) -> str | None:
        """Hash of one task's job."""
        row = self._connection.execute("SELECT content FROM tasks WHERE id = ?", (task_id,)).fetchone()
        return None if row is None else row[0]

    def job(self, sequence: int) -> str | None:
        """One task's job as JSON."""
        return self._text("jobs", sequence)

    def evaluation(self, sequence: int) -> str | None:
        """One task's verdict as JSON."""
        return self._text("evaluations", sequence)

    def _text(self, table: str, sequence: int) -> str | None:
        row = self._connection.execute(f"SELECT body FROM {table} WHERE sequence = ?", (sequence,)).fetchone()
        return None if row is None else row[0]

    def page(self, limit: int, before: int | None, filters: dict[str, str]) -> list[sqlite3.Row]:
        """Summaries, newest first; `filters` are columns and the values that they must have."""
        others = dict(filters)
        state = others.pop("state", None)
        # Where the state leaves few, SQLite is not to look up (`+`) all of a client's instead.
        plus = "" if state in (None, TaskState.DONE) else "+"
        conditions = [] if state is None else [_in_state(TaskState(state))]
        conditions += [f"{plus}{column} = ?" for column in others]
        values: list[Any] = list(others.values())
        if before is not None:
            conditions.append("sequence < ?")
            values.append(before)
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        statement = f"SELECT {SUMMARY} FROM tasks {where} ORDER BY sequence DESC LIMIT ?"
        return self._connection.execute(statement, (*values, limit)).fetchall()

    def running(self, limit: int, client: str | None = None) -> list[sqlite3.Row]:
        """Summaries of what runs (of one client if it is given), the longest running first."""
        which = f"{_in_state(TaskState.RUNNING)} AND +client = coalesce(?, client)"
        statement = f"SELECT {SUMMARY} FROM tasks WHERE {which} ORDER BY started_at LIMIT ?"
        return self._connection.execute(statement, (client, limit)).fetchall()

    def latest(self, limit: int, client: str | None = None) -> list[sqlite3.Row]:
        """Summaries of what ended last (of one client if it is given), newest first."""
        theirs, values = ("", (limit,)) if client is None else ("client = ? AND ", (client, limit))
        statement = (
            f"SELECT {SUMMARY} FROM tasks WHERE {theirs}finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT ?"
        )
        return self._connection.execute(statement, values).fetchall()

    def overdue(self, now: float, limit: int) -> list[str]:
        """Ids of queued tasks whose deadline has passed."""
        statement = "SELECT id FROM tasks WHERE state = 'queued' AND deadline_at < ? LIMIT ?"
        return [row[0] for row in self._connection.execute(statement, (now, limit))]

    def unfinished(self) -> Iterable[Entry]:
        """All queued tasks, in the order of acceptance."""
        statement = (
            "SELECT id, sequence, client, priority, num_bytes, device, attempts FROM tasks"
            f" WHERE {_in_state(TaskState.QUEUED)} ORDER BY sequence"
        )
        for row in self._connection.execute(statement):
            yield Entry(*row[:5], device=row[5], num_deaths=row[6])

    def counts(self) -> list[tuple[str, str | None, int]]:
        """Number of tasks by state and verdict."""
        rows = self._connection.execute("SELECT state, status, count(*) FROM tasks GROUP BY state, status")
        return [(row[0], row[1], row[2]) for row in rows]

    def used_bytes(self) -> int:
        """Size of what is stored, free pages not counted."""
        pages, free, size = (
            self._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
