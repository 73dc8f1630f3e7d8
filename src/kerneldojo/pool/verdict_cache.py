"""Verdicts by content: equal jobs have equal verdicts, so that a second one costs a look-up.

Kept are verdicts that speak of the candidate or of the problem; never a fault of ours. In memory the least recently
used go first; a folder, if there is one, holds an SQLite file that several processes may share.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from collections import OrderedDict
from importlib import metadata
from pathlib import Path

from pydantic import ValidationError

from kerneldojo.schema import Evaluation, Status, content_hash

log = logging.getLogger(__name__)

_SCHEMA = "CREATE TABLE IF NOT EXISTS verdicts (key TEXT PRIMARY KEY, evaluation TEXT NOT NULL) WITHOUT ROWID"


def is_lasting(evaluation: Evaluation) -> bool:
    """Whether the same would come out again, so that it may be remembered."""
    return evaluation.status.is_about_candidate or evaluation.status is Status.INVALID_PROBLEM


def environment_hash() -> str:
    """What besides the job decides a verdict: versions of the judge and of what it runs on."""

    def version(package: str) -> str:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            return "none"

    return content_hash(*(version(name) for name in ("kerneldojo", "torch", "triton", "numpy")))


class VerdictCache:
    """Thread-safe.

    Args:
        capacity: verdicts kept in memory.
        folder: where they are kept on disk too; made if it is not there.

    Raises:
        ValueError: the folder cannot be used (in one line).
    """

    def __init__(self, capacity: int, folder: Path | None = None) -> None:
        self._capacity = capacity
        self._memory: OrderedDict[str, Evaluation] = OrderedDict()
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self._database = sqlite3.connect(
                    folder / "verdicts.sqlite3", timeout=10, isolation_level=None, check_same_thread=False
                )
                self._database.execute("PRAGMA journal_mode=WAL")
                self._database.execute("PRAGMA synchronous=NORMAL")
                self._database.execute(_SCHEMA)
            except (OSError, sqlite3.Error) as error:
                raise ValueError(f"verdicts cannot be kept in {folder}: {error}") from None

    def get(self, key: str) -> Evaluation | None:
        """The verdict known under `key`, if any."""
        with self._lock:
            if key in self._memory:
                self._memory.move_to_end(key)
                return self._memory[key]
            evaluation = self._read(key)
            if evaluation is not None:
                self._keep(key, evaluation)
            return evaluation

    def put(self, key: str, evaluation: Evaluation) -> None:
        """Remember a verdict, if it is a lasting one."""
        if not is_lasting(evaluation):
            return
        with self._lock:
            self._keep(key, evaluation)
            if self._database is not None:
                try:
                    self._database.execute(
                        "INSERT OR REPLACE INTO verdicts VALUES (?, ?)", (key, evaluation.model_dump_json())
                    )
                except sqlite3.Error as error:  # Remembering is a convenience: a full disk must not cost a verdict.
                    log.warning("a verdict could not be kept on disk: %s", error)

    def _keep(self, key: str, evaluation: Evaluation) -> None:
        self._memory[key] = evaluation
        self._memory.move_to_end(key)
        while len(self._memory) > self._capacity:
            self._memory.popitem(last=False)

    def _read(self, key: str) -> Evaluation | None:
        if self._database is None:
            return None
        try:
            row = self._database.execute("SELECT evaluation FROM verdicts WHERE key = ?", (key,)).fetchone()
        except sqlite3.Error as error:
            log.warning("kept verdicts cannot be read: %s", error)
            return None
        if row is None:
            return None
        with contextlib.suppress(ValidationError):  # Written by another version: judged anew, and replaced.
            return Evaluation.model_validate_json(row[0])
        return None

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._database is not None:
                self._database.close()
                self._database = None
