"""A write counts until whoever waits for it has been told, so that nobody ends a service before that."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from service_damage import damage

from kerneldojo.service.journal import Journal, Write


def test_what_is_being_written_is_not_done_yet() -> None:
    calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
    journal = Journal(sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None), calls.put)
    begun, disk = threading.Event(), threading.Event()
    told: list[str] = []

    def slow(connection: sqlite3.Connection) -> str:
        begun.set()
        assert disk.wait(30)
        return "first"

    journal.put(Write(slow, told.append, must_succeed=True))
    assert begun.wait(30)
    journal.put(Write(lambda connection: "second", told.append, must_succeed=True))
    assert len(journal) == 2, "one is with the disk, one waits for it"
    disk.set()
    calls.get(timeout=30)()
    assert (told, len(journal)) == (["first"], 1)
    calls.get(timeout=30)()
    assert (told, len(journal)) == (["first", "second"], 0)
    assert journal.close()


def test_what_is_given_up_counts_no_more() -> None:
    connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
    journal = Journal(connection, calls.put)

    def refuse(connection: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    told: list[object] = []
    journal.put(Write(refuse, told.append, must_succeed=False))
    calls.get(timeout=30)()
    assert [type(one).__name__ for one in told] == ["StoreError"]
    assert len(journal) == 0
    journal.put(Write(refuse, told.append, must_succeed=True))
    assert not journal.close(timeout=0.01) or len(journal) == 0
    journal._thread.join(30)
    assert len(journal) == 0


def test_a_write_that_can_never_be_made_takes_no_other_with_it() -> None:
    """Nor the thread that writes, without which nothing would be accepted any more."""
    connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    connection.execute("CREATE TABLE told (number INTEGER)")
    calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
    disk = threading.Event()
    told: list[object] = []

    def insert(number: int) -> Write:
        def apply(connection: sqlite3.Connection) -> int:
            assert disk.wait(30)
            connection.execute("INSERT INTO told VALUES (?)", (number,))
            return number

        return Write(apply, told.append, must_succeed=True)

    journal = Journal(connection, calls.put)
    for number in (1, 2, 1 << 80, 3):  # SQLite has no such number: an OverflowError, which is none of its own.
        journal.put(insert(number))
    disk.set()
    while len(journal):
        calls.get(timeout=30)()
    assert [type(one).__name__ for one in told] == ["int", "int", "StoreError", "int"]
    assert connection.execute("SELECT number FROM told ORDER BY number").fetchall() == [(1,), (2,), (3,)]
    assert journal.close()


def test_nor_does_one_that_belongs_on_a_damaged_page(tmp_path: Path) -> None:
    """It would be tried again for ever, and each time everything that was accepted meanwhile is refused with it."""
    file = tmp_path / "store.db"
    connection = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
    connection.execute("CREATE TABLE whole (number INTEGER)")
    connection.execute("CREATE TABLE damaged (number INTEGER)")
    (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'damaged'").fetchone()
    connection.close()
    damage(file, (page - 1) * 4096)
    calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
    disk = threading.Event()
    told: list[object] = []

    def insert(table: str) -> Write:
        def apply(connection: sqlite3.Connection) -> str:
            assert disk.wait(30)
            connection.execute(f"INSERT INTO {table} VALUES (1)")
            return table

        return Write(apply, told.append, must_succeed=True)

    journal = Journal(sqlite3.connect(file, check_same_thread=False, isolation_level=None), calls.put)
    for table in ("whole", "damaged", "whole"):
        journal.put(insert(table))
    disk.set()
    while len(journal):
        calls.get(timeout=30)()
    assert [type(one).__name__ for one in told] == ["str", "StoreError", "str"]
    assert journal.close()
