"""`dojo store` on what a real service has written, while it runs and after it was killed."""

from __future__ import annotations

import json
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from service_process import ServiceProcess

from kerneldojo import Candidate, Client, Problem
from kerneldojo.evaluate import read_records
from kerneldojo.schema import Job

PROBLEM = Problem(name="p", source="x", suite="katas", level=2)
Dojo = Callable[..., subprocess.CompletedProcess[str]]
WORDS = ["passed 0", "incorrect 1", "odd 2", "exploit 3", "passed 4"]


def job(source: str) -> Job:
    return Job(problem=PROBLEM, candidate=Candidate(source=source), timeout=30)


def store(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "kerneldojo.cli", "store", *map(str, arguments)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """Two clients' tasks have ended, one task was cancelled, one runs."""
    with ServiceProcess(tmp_path_factory.mktemp("service")) as process:
        with Client(process.url, name="alice") as alice, Client(process.url, name="bob") as bob:
            assert len(dict(alice.judge_many([job(word) for word in WORDS], prefix="a"))) == 5
            bob.judge(PROBLEM, Candidate(source="passed bob"), id="b")
            bob.submit(job("sleep 100 cancelled"), id="gone")
            bob.cancel("gone")
            alice.submit(job("sleep 100 running"), id="runs")
        yield process


@pytest.fixture
def file(service: ServiceProcess) -> Path:
    return Path(service.process.args[service.process.args.index("--store") + 1])  # type: ignore[index,union-attr]


def test_info_counts_what_is_there(file: Path) -> None:
    info = json.loads(store("info", file, "--json").stdout)
    assert info["states"]["done"] == 6 and info["states"]["cancelled"] == 1
    assert info["verdicts"] == {"exploit": 1, "incorrect": 1, "passed": 3, "runtime_error": 1}
    assert info["clients"] == {"alice": 6, "bob": 2} and info["oldest"] <= info["newest"] and info["num_bytes"] > 0
    said = store("info", file).stdout
    assert "6 done" in said and "3 passed" in said and "2 bob" in said and "submitted: 20" in said


def test_export_writes_what_evaluate_would(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    assert "exported 6 tasks" in store("export", file, "--out", out).stderr
    records = list(read_records(out))
    assert [one.id for one in records] == ["a-0", "a-1", "a-2", "a-3", "a-4", "b"]
    first = records[0]
    assert first.job == job("passed 0").hash and first.candidate.source == "passed 0" and first.level == 2
    assert first.settings.job is not None and first.settings.timeout == 30 and first.evaluation.speedup == 2.0
    piped = store("export", file)
    assert piped.stdout == out.read_text() and piped.stdout.isascii()


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        (("--status", "passed"), ["a-0", "a-4", "b"]),
        (("--client", "bob"), ["b"]),
        (("--client", "alice", "--status", "exploit"), ["a-3"]),
        (("--since", "2001-01-01"), ["a-0", "a-1", "a-2", "a-3", "a-4", "b"]),
        (("--since", "2999-01-01T12:00+00:00"), []),
        (("--client", "nobody"), []),
    ],
)
def test_export_takes_some(file: Path, filters: tuple[str, ...], ids: list[str]) -> None:
    assert [json.loads(line)["id"] for line in store("export", file, *filters).stdout.splitlines()] == ids


def test_a_reader_that_has_enough_is_no_fault(file: Path) -> None:
    command = f"{sys.executable} -m kerneldojo.cli store export {file} | head -c 10"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == '{"id": "a-' and "fault" not in done.stderr and "Traceback" not in done.stderr


def test_a_copy_beside_a_running_service_is_a_store_of_its_own(
    file: Path, service: ServiceProcess, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.sqlite"
    with Client(service.url, name="carol") as carol:
        carol.submit_many([job(f"passed meanwhile {number}") for number in range(300)])
        store("backup", file, copy)
        assert carol.health().status == "healthy"
    assert [one.name for one in tmp_path.iterdir()] == ["copy.sqlite"] and stat.S_IMODE(copy.stat().st_mode) == 0o600
    with sqlite3.connect(copy) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert [json.loads(one)["id"] for one in store("export", copy, "--client", "bob").stdout.splitlines()] == ["b"]
    said = store("backup", file, copy, code=2).stderr
    assert said == f"dojo: {copy} is there already\n"
    assert "cannot write" in store("backup", file, tmp_path / "none" / "copy", code=2).stderr


def test_prune_needs_the_store_for_itself_and_keeps_what_waits(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with ServiceProcess(tmp_path) as process:
        with Client(process.url) as client:
            for _ in client.judge_many([job(f"passed {'x' * 100_000} {number}") for number in range(40)]):
                pass
            client.submit(job("sleep 100"), id="waits")
        said = store("prune", path, "--keep-mb", "1", code=2).stderr
        assert said.startswith(f"dojo: the store {path} is in use") and said.count("\n") == 1
        process.kill()
    assert "deleted 0 tasks" in store("prune", path, "--keep-days", "1").stderr
    size = path.stat().st_size
    assert "deleted" in store("prune", path, "--keep-mb", "2").stderr
    info = json.loads(store("info", path, "--json").stdout)
    assert info["num_bytes"] <= 2 << 20 and 0 < info["states"].get("done", 0) < 40 and info["free_bytes"] > 0
    with sqlite3.connect(path) as database:
        database.execute("UPDATE tasks SET finished_at = finished_at - 864000 WHERE state = 'done'")
    database.close()
    assert "deleted" in store("prune", path, "--keep-days", "9", "--shrink").stderr
    info = json.loads(store("info", path, "--json").stdout)
    assert info["states"] == {"running": 1} and info["free_bytes"] == 0 and path.stat().st_size < size / 10
    with ServiceProcess(tmp_path) as again, Client(again.url) as client:
        until = time.monotonic() + 30
        while client.get("waits").state != "running":
            assert time.monotonic() < until
            time.sleep(0.05)


COMMANDS = [("info",), ("export",), ("backup", "copy"), ("prune", "--keep-days", "1")]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_what_is_no_store_is_one_line(command: tuple[str, ...], tmp_path: Path, dojo_here: Dojo) -> None:
    text, empty, other, newer, folder = (tmp_path / name for name in ("text", "empty", "other", "newer", "folder"))
    text.write_text("no database at all\n" * 100)
    empty.touch()
    folder.mkdir()
    for path, statements in ((other, "CREATE TABLE a (b)"), (newer, _layout(99))):
        with sqlite3.connect(path) as database:
            database.executescript(statements)
        database.close()
    told = {
        tmp_path / "missing": "there is no such file",
        text: "file is not a database",
        empty: "is no store of a service",
        other: "is no store of a service",
        newer: "is a newer program's store (layout 99; this program reads 2)",
        folder: "is no file",
    }
    before = {path.name for path in tmp_path.iterdir()}
    rest = [str(tmp_path / one) if one == "copy" else one for one in command[1:]]
    for path, words in told.items():
        done = dojo_here("store", command[0], path, *rest)
        said = done.stderr
        assert done.returncode == 2 and said.startswith(f"dojo: {path}: ") and said.count("\n") == 1 and words in said
    assert {path.name for path in tmp_path.iterdir()} == before, "nothing is made"


def test_bad_options_are_one_line(file: Path, dojo_here: Dojo) -> None:
    assert "say what to delete" in dojo_here("store", "prune", file).stderr
    for arguments in (("--since", "yesterday"), ("--status", "good"), ("--out", "")):
        done = dojo_here("store", "export", file, *arguments)
        assert done.returncode == 2 and done.stderr.startswith("dojo: ") and done.stderr.count("\n") == 1


def _layout(version: int) -> str:
    from kerneldojo.service.store import LAYOUT

    return f"{LAYOUT} PRAGMA user_version = {version};"
