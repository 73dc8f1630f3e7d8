"""The store: every task from its acceptance to its verdict, in one SQLite file in WAL mode.

States only move forward (queued, running, then done or cancelled), and the statement that ends a task names the states
that it may end from: a second verdict for the same task changes nothing, so each has exactly one. After a crash the
tasks that were running are queued again.

Small rows and large texts are in tables of their own, so that lists and state changes never touch a source.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kerneldojo.service.reader import Reader
from kerneldojo.service.records import TaskState

VERSION = 2
"""Version of the layout below."""

LAYOUT = """
CREATE TABLE IF NOT EXISTS tasks (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL, client TEXT NOT NULL,
    priority INTEGER NOT NULL, content TEXT NOT NULL, num_bytes INTEGER NOT NULL, problem TEXT NOT NULL,
    device TEXT NOT NULL, submitted_at REAL NOT NULL, started_at REAL, finished_at REAL, deadline_at REAL,
    attempts INTEGER NOT NULL DEFAULT 0, expired INTEGER NOT NULL DEFAULT 0, status TEXT, speedup REAL, coverage REAL,
    kernel_ms REAL, reference_ms REAL, roofline_fraction REAL, timing_source TEXT, baseline TEXT,
    judged_on TEXT NOT NULL DEFAULT '');
CREATE TABLE IF NOT EXISTS jobs (sequence INTEGER PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS evaluations (sequence INTEGER PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS beats (id INTEGER PRIMARY KEY, at REAL NOT NULL);
CREATE INDEX IF NOT EXISTS tasks_open ON tasks (state, sequence) WHERE state IN ('queued', 'running');
CREATE INDEX IF NOT EXISTS tasks_cancelled ON tasks (sequence) WHERE state = 'cancelled';
CREATE INDEX IF NOT EXISTS tasks_deadline ON tasks (deadline_at) WHERE state = 'queued' AND deadline_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS tasks_finished ON tasks (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS tasks_client ON tasks (client, sequence);
CREATE INDEX IF NOT EXISTS tasks_client_finished ON tasks (client, finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS tasks_status ON tasks (status, sequence) WHERE status IS NOT NULL;
"""


@dataclass(frozen=True, slots=True)
class NewTask:
    """What is stored when a task is accepted."""

    id: str
    client: str
    priority: int
    content: str
    """Hash of the job: tells a retry from another job under the same id."""
    body: str
    """The job as JSON."""
    num_bytes: int
    """Length of `body` in UTF-8."""
    problem: str
    problem_hash: str
    """For the queue alone; not on disk."""
    device: str
    submitted_at: float
    deadline_at: float | None
    joins_others: bool = False
    """Whether an equal task under the same id is the same task even if it is another client's."""


@dataclass(frozen=True, slots=True)
class Insertion:
    """What became of a `NewTask`."""

    sequence: int
    state: TaskState
    is_new: bool
    is_conflict: bool


@dataclass(frozen=True, slots=True)
class Ending:
    """What is stored when a task ends: the summary's columns and the whole verdict."""

    id: str
    finished_at: float
    columns: dict[str, Any]
    """Columns of `tasks` beside the state."""
    body: str
    """The evaluation as JSON."""


class Store:
    """One SQLite file, locked for one service; connections belong to the threads that use them."""

    def __init__(self, path: Path) -> None:
        """Open or make the file.

        Raises:
            ValueError: it cannot be opened, is not such a store, or another service has it.
        """
        self.path = path
        if str(path) == ":memory:":
            # SQLite's word for no file at all: each connection would see a store of its own, and none would last.
            raise ValueError(f"cannot open the store {path}: it must be a file")
        try:
            if path.is_dir():
                raise ValueError(f"cannot open the store {path}: it is a folder; name a file in it")
            # The file itself, whatever it is called here: under two names it would have two locks.
            self._lock = os.open(f"{os.path.realpath(path)}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except NotADirectoryError:
            raise ValueError(f"cannot open the store {path}: {_not_a_folder(path)} is a file, not a folder") from None
        except FileNotFoundError:
            # Not made: a store in a folder with a misspelt name would be an empty one.
            raise ValueError(f"cannot open the store {path}: there is no folder {path.parent}") from None
        except OSError as error:
            raise ValueError(f"cannot open the store {path}: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise ValueError(f"the store {path} is in use by another service") from None
        try:
            # Sources are their authors' business: only the owner may read the file.
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._identity = _identity(os.fstat(file))
            os.close(file)
            self.writer = self._connect()
            self._lay_out()
        except (OSError, sqlite3.Error) as error:
            os.close(self._lock)
            raise ValueError(f"cannot open the store {path}: {error}") from None

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=5.0, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        # Copying the log back costs two more flushes: once every 64 MiB instead of every 4.
        connection.execute("PRAGMA wal_autocheckpoint = 16384")
        connection.execute(f"PRAGMA journal_size_limit = {256 << 20}")
        return connection

    def _lay_out(self) -> None:
        (found,) = self.writer.execute("PRAGMA user_version").fetchone()
        if found not in (0, VERSION):
            raise sqlite3.DatabaseError(f"its layout is version {found}, this program writes {VERSION}")
        (others,) = self.writer.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if found == 0 and others:
            raise sqlite3.DatabaseError("it is somebody else's database")
        # In one transaction: what was killed in between has nothing, and not a part that would be taken for another's.
        self.writer.executescript(f"BEGIN; {LAYOUT} PRAGMA user_version = {VERSION}; COMMIT;")

    def reader(self) -> Reader:
        """A new connection that only reads; for one thread."""
        connection = self._connect()
        connection.execute("PRAGMA query_only = 1")
        connection.row_factory = sqlite3.Row
        return Reader(connection)

    def is_in_place(self) -> bool:
        """Whether the next service that is given the path finds this file: what a removed one takes is lost."""
        try:
            return _identity(self.path.stat()) == self._identity
        except OSError:
            return False

    def close(self) -> None:
        """Give the file back."""
        self.writer.close()
        os.close(self._lock)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _not_a_folder(path: Path) -> Path:
    """What is in the way above `path`."""
    return next((above for above in path.parents if above.exists() and not above.is_dir()), path.parent)


def insert(connection: sqlite3.Connection, tasks: Iterable[NewTask]) -> list[Insertion]:
    """Accept tasks; one that is there already is left as it is."""
    return [_insert(connection, task) for task in tasks]


def _insert(connection: sqlite3.Connection, task: NewTask) -> Insertion:
    values = (task.id, task.client, task.priority, task.content, task.num_bytes, task.problem, task.device)
    cursor = connection.execute(
        "INSERT INTO tasks"
        " (id, client, priority, content, num_bytes, problem, device, submitted_at, deadline_at, state)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'queued') ON CONFLICT (id) DO NOTHING",
        (*values, task.submitted_at, task.deadline_at),
    )
    if cursor.rowcount:
        sequence = cursor.lastrowid or 0
        connection.execute("INSERT INTO jobs VALUES (?, ?)", (sequence, task.body))
        return Insertion(sequence, TaskState.QUEUED, is_new=True, is_conflict=False)
    row = connection.execute("SELECT sequence, state, content, client FROM tasks WHERE id = ?", (task.id,)).fetchone()
    is_theirs = row[3] == task.client or task.joins_others
    return Insertion(row[0], TaskState(row[1]), is_new=False, is_conflict=row[2] != task.content or not is_theirs)


def start(connection: sqlite3.Connection, task_id: str) -> bool:
    """Mark a queued task as running; whether it was queued and in time: an overdue one stays as it is, to be ended."""
    statement = (
        "UPDATE tasks SET state = 'running', started_at = ?, attempts = attempts + 1"
        " WHERE id = ? AND state = 'queued' AND (deadline_at IS NULL OR deadline_at >= ?)"
    )
    now = time.time()
    return connection.execute(statement, (now, task_id, now)).rowcount == 1


def finish(connection: sqlite3.Connection, ending: Ending, from_states: tuple[TaskState, ...]) -> bool:
    """End a task with its verdict if it is in one of `from_states`; whether it was."""
    columns = ", ".join(f"{name} = ?" for name in ending.columns)
    states = ", ".join(f"'{state}'" for state in from_states)
    changed = connection.execute(
        f"UPDATE tasks SET state = 'done', finished_at = ?, {columns} WHERE id = ? AND state IN ({states})",
        (ending.finished_at, *ending.columns.values(), ending.id),
    ).rowcount
    if changed:
        connection.execute(
            "INSERT INTO evaluations SELECT sequence, ? FROM tasks WHERE id = ?", (ending.body, ending.id)
        )
    return changed == 1


def cancel(connection: sqlite3.Connection, task_id: str, from_states: tuple[TaskState, ...]) -> TaskState | None:
    """End a task without a verdict if it is in one of `from_states`; the state that it was in, None if in no such."""
    states = ", ".join(f"'{state}'" for state in from_states)
    query = f"SELECT state FROM tasks WHERE id = ? AND state IN ({states})"
    row = connection.execute(query, (task_id,)).fetchone()
    if row is None:
        return None
    statement = "UPDATE tasks SET state = 'cancelled', finished_at = ? WHERE id = ?"
    connection.execute(statement, (time.time(), task_id))
    return TaskState(row[0])


def recover(connection: sqlite3.Connection, max_attempts: int) -> list[str]:
    """Queue again what was running when the last service died; ids of those that were started too often already."""
    connection.execute("UPDATE tasks SET state = 'queued', started_at = NULL WHERE state = 'running'")
    statement = "SELECT id FROM tasks WHERE state = 'queued' AND attempts >= ?"
    return [row[0] for row in connection.execute(statement, (max_attempts,))]


def beat(connection: sqlite3.Connection) -> None:
    """Write something, to see whether it can be done."""
    connection.execute("INSERT OR REPLACE INTO beats VALUES (1, ?)", (time.time(),))


def requeue(connection: sqlite3.Connection, task_id: str) -> bool:
    """Queue a running task again, as though it had not been started; whether it was running."""
    statement = (
        "UPDATE tasks SET state = 'queued', started_at = NULL, attempts = attempts - 1"
        " WHERE id = ? AND state = 'running'"
    )
    return connection.execute(statement, (task_id,)).rowcount == 1


def prune(connection: sqlite3.Connection, before: float, limit: int) -> int:
    """Delete at most `limit` tasks that ended before a time, the oldest first; how many."""
    rows = connection.execute(
        "SELECT sequence FROM tasks WHERE finished_at < ? ORDER BY finished_at LIMIT ?", (before, limit)
    ).fetchall()
    for table in ("tasks", "jobs", "evaluations"):
        connection.executemany(f"DELETE FROM {table} WHERE sequence = ?", rows)
    return len(rows)
