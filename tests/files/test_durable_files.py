"""Files that survive being killed: whole or not at all, and lines that are all there but perhaps the last."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerneldojo.files import Journal, append_line, cut_torn_line, read_lines, replacing, write_whole

LINES = st.lists(st.binary(max_size=40).map(lambda data: data.replace(b"\n", b"")), max_size=5)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    write_whole(path, b"one")
    write_whole(path, b"two", durable=False)
    assert path.read_bytes() == b"two" and names(tmp_path) == ["manifest.json"]


def test_a_failure_leaves_the_old_file_and_no_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / "table"
    write_whole(path, b"old")
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_bytes(b"half")
        assert len(names(tmp_path)) == 2
        raise ZeroDivisionError
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="folder"):  # it is written, but cannot take the place of a folder
        write_whole(tmp_path / "folder", b"new")
    assert path.read_bytes() == b"old" and names(tmp_path) == ["folder", "table"]
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "nowhere" / "table", b"new")


def test_a_full_disk_leaves_the_old_file_and_no_temporary_one(tmp_path: Path) -> None:
    """A limit on the size of files is as good as a full disk: the write stops in the middle."""
    path = tmp_path / "table"
    write_whole(path, b"old")
    script = (
        "import resource, signal, sys; from pathlib import Path; from kerneldojo.files import write_whole\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (1000, {resource.RLIM_INFINITY}))\n"
        "try:\n    write_whole(Path(sys.argv[1]), bytes(10_000))\n"
        "except OSError as error:\n    print(error.strerror)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "File too large"
    assert path.read_bytes() == b"old" and names(tmp_path) == ["table"]


@given(lines=LINES, torn=st.binary(max_size=20).map(lambda data: data.replace(b"\n", b"")))
def test_lines_are_all_there_but_a_torn_one(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], torn: bytes
) -> None:
    path = tmp_path_factory.mktemp("lines") / "lines.jsonl"
    assert list(read_lines(path)) == []
    whole = b"".join(line + b"\n" for line in lines)
    path.write_bytes(whole + torn)
    assert [line.removesuffix(b"\n") for _, line in read_lines(path)] == lines
    cut_torn_line(path)
    assert path.read_bytes() == whole


def test_the_next_line_stands_on_its_own_however_long_the_torn_one_is(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    append_line(path, b"one")
    for torn in (b"tw", b"x" * 200_000):
        with path.open("ab") as file:
            file.write(torn)
        append_line(path, b"two")
    with path.open("ab") as file:
        file.write(b"tw")
    journal = Journal([path])
    journal.append(0, b"three").result(timeout=10)
    journal.close()
    assert list(read_lines(path)) == [(1, b"one\n"), (2, b"two\n"), (3, b"two\n"), (4, b"three\n")]


def test_a_journal_that_pauses_writes_lines_together_and_in_order(tmp_path: Path, monkeypatch) -> None:
    writes: list[bytes] = []
    monkeypatch.setattr("kerneldojo.files.journal._write_fully", lambda descriptor, data: writes.append(data))
    journal = Journal([tmp_path / "lines.jsonl"], pause=0.2)
    journal.append(0, b"0").result(timeout=10)
    lines = [journal.append(0, b"%d" % number) for number in range(1, 50)]
    lines[-1].result(timeout=10)
    assert all(line.done() for line in lines)
    assert b"".join(writes) == b"".join(b"%d\n" % number for number in range(50))
    assert len(writes) < 10
    journal.append(0, b"last")
    journal.close()
    assert writes[-1] == b"last\n"
