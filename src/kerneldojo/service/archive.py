"""A store that is looked at without a service: also beside one that is running, which never waits for it.

Everything here reads only, in short statements: a long one would keep the service's log from being copied back.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from pydantic import Field

from kerneldojo.files import replacing
from kerneldojo.schema import Frozen, Status
from kerneldojo.service.reader import Reader
from kerneldojo.service.store import VERSION

PAGE = 200
"""Tasks that are read at once."""

EARLIEST, LATEST = "min(submitted_at)", "max(submitted_at)"


class StoreInfo(Frozen):
    """What is in a store."""

    path: str
    num_bytes: int
    """Size of what is stored."""
    free_bytes: int
    """Size of what was deleted and is not used again yet."""
    states: dict[str, int] = Field(default_factory=dict)
    """Tasks by state."""
    verdicts: dict[str, int] = Field(default_factory=dict)
    """Ended tasks by verdict."""
    clients: dict[str, int] = Field(default_factory=dict)
    """Tasks by client."""
    oldest: float | None = None
    """When the first of them was submitted, in seconds since 1970."""
    newest: float | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A task with a verdict, as its texts on disk."""

    id: str
    job: str
    evaluation: str


class Archive:
    """A store, open for reading; a context manager."""

    def __init__(self, path: Path) -> None:
        """Open it.

        Raises:
            ValueError: it is not there, is no store, or another version's (one line).
        """
        if not path.is_file():
            raise ValueError(f"{path}: {'is no file' if path.exists() else 'there is no such file'}")
        try:
            self._connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=5.0)
        except sqlite3.Error as error:
            raise ValueError(f"{path}: cannot be read: {error}") from None
        self._connection.row_factory = sqlite3.Row
        try:
            self._check()
        except (ValueError, sqlite3.Error) as error:
            self.close()
            raise ValueError(f"{path}: {error}") from None
        self.path = path
        self._reader = Reader(self._connection)

    def _check(self) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        names = {row[0] for row in self._connection.execute("SELECT name FROM sqlite_master")}
        if not {"tasks", "jobs", "evaluations"} <= names:
            raise ValueError("is no store of a service")
        if version != VERSION:
            whose = "a newer" if version > VERSION else "an older"
            raise ValueError(f"is {whose} program's store (layout {version}; this program reads {VERSION})")

    def info(self) -> StoreInfo:
        """What is in it."""
        states, verdicts = Counter[str](), Counter[str]()
        for state, status, number in self._reader.counts():
            states[state] += number
            if status is not None:
                verdicts[status] += number
        clients = self._connection.execute("SELECT client, count(*) FROM tasks GROUP BY client ORDER BY 2 DESC")
        oldest, newest = self._connection.execute(f"SELECT {EARLIEST}, {LATEST} FROM tasks").fetchone()
        free, size = (
            self._connection.execute(f"PRAGMA {one}").fetchone()[0] for one in ("freelist_count", "page_size")
        )
        return StoreInfo(
            path=str(self.path),
            num_bytes=self._reader.used_bytes(),
            free_bytes=free * size,
            states=states,
            verdicts=verdicts,
            clients=dict(clients.fetchall()),
            oldest=oldest,
            newest=newest,
        )

    def ended(
        self, *, status: Status | None = None, client: str | None = None, since: float | None = None
    ) -> Iterator[Ended]:
        """The tasks that have a verdict, in the order of acceptance; cancelled ones have none.

        Args:
            status: only those with this verdict.
            client: only those of this client.
            since: only those that ended then or later, in seconds since 1970.
        """
        wanted = {"status = ?": status, "client = ?": client, "finished_at >= ?": since}
        told = {condition: value for condition, value in wanted.items() if value is not None}
        where = " AND ".join(("tasks.sequence > ?", "state = 'done'", *told))
        statement = (
            "SELECT sequence, id, jobs.body, evaluations.body FROM tasks JOIN jobs USING (sequence)"
            f" JOIN evaluations USING (sequence) WHERE {where} ORDER BY sequence LIMIT {PAGE}"
        )
        last = 0
        while rows := self._connection.execute(statement, (last, *told.values())).fetchall():
            last = rows[-1][0]
            yield from (Ended(*row[1:]) for row in rows)

    def backup(self, target: Path) -> None:
        """Copy it as it is now to a file that is not there yet, which its owner alone may read.

        Raises:
            FileExistsError: it is there.
            OSError: it cannot be written.
            sqlite3.Error: the store cannot be read, or the copy not be written.
        """
        if target.exists() or target.is_symlink():
            raise FileExistsError(f"{target} is there already")
        with replacing(target) as temporary:
            temporary.chmod(0o600)
            copy = sqlite3.connect(temporary)
            try:
                # All at once: in parts it would begin anew with each task that a service accepts meanwhile.
                self._connection.backup(copy)
            finally:
                copy.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
