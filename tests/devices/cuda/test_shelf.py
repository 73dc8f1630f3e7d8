"""What one judge has precompiled another takes, if everything is as it was, and whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from extensions import precompiled, shared_shelf

from kerneldojo.devices.cuda import shelf, toolchain
from kerneldojo.devices.cuda.precompiled import Precompiler
from kerneldojo.devices.cuda.shelf import MOST_KEPT, Shelf, key

TOOLS = toolchain.find((9, 0))
TEXTS = {"brief/a.h": "int a;", "brief/bare/b.h": "int b;", "names.json": "{}"}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    folder = tmp_path / "made"
    for name, text in TEXTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def strict_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


def put(one: Shelf, made: Path) -> None:
    one.put(made, [made / name for name in TEXTS])


def test_what_is_put_is_taken_by_another_and_may_be_read_by_other_users(
    made: Path, tmp_path: Path, strict_umask: None
) -> None:
    put(Shelf(tmp_path / "kept" / "headers", TOOLS), made)
    taken = tmp_path / "taken"
    assert Shelf(tmp_path / "kept" / "headers", TOOLS).take(taken)
    assert {name: (taken / name).read_text() for name in TEXTS} == TEXTS
    assert {path.stat().st_mode & 0o777 for path in taken.rglob("*") if path.is_file()} == {0o644}
    assert {path.stat().st_mode & 0o777 for path in (taken, taken / "brief", taken / "brief/bare")} == {0o755}
    assert (tmp_path / "kept" / "headers").stat().st_mode & 0o777 == 0o700


def test_nothing_is_taken_where_nothing_was_put(tmp_path: Path) -> None:
    assert not Shelf(tmp_path / "kept", TOOLS).take(tmp_path / "taken")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("length", [0, 10, 200, -1])
def test_a_torn_archive_is_nothing_and_is_written_anew(
    made: Path, tmp_path: Path, length: int, caplog: pytest.LogCaptureFixture
) -> None:
    one = Shelf(tmp_path / "kept", TOOLS)
    put(one, made)
    one.archive.write_bytes(one.archive.read_bytes()[:length])
    assert not one.take(tmp_path / "taken")
    assert not (tmp_path / "taken").exists() and "made anew" in caplog.text
    put(one, made)
    assert one.take(tmp_path / "taken")


def test_a_changed_byte_is_found(made: Path, tmp_path: Path) -> None:
    one = Shelf(tmp_path / "kept", TOOLS)
    (made / "names.json").write_bytes(os.urandom(5000))
    put(one, made)
    data = bytearray(one.archive.read_bytes())
    data[len(data) // 2] ^= 1
    one.archive.write_bytes(data)
    assert not one.take(tmp_path / "taken") and not (tmp_path / "taken").exists()


def test_whoever_cannot_keep_anything_goes_without(
    made: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    one = Shelf(tmp_path / "file" / "headers", TOOLS)
    put(one, made)
    assert "cannot be kept" in caplog.text
    assert not one.take(tmp_path / "taken")


def test_the_latest_are_kept(made: Path, tmp_path: Path) -> None:
    shelves = [Shelf(tmp_path, replace(TOOLS, architecture=str(number))) for number in range(MOST_KEPT + 2)]
    for number, one in enumerate(shelves):
        put(one, made)
        os.utime(one.archive, (number, number))
    assert shelves[2].take(tmp_path / "taken")
    put(shelves[0], made)
    assert [number for number, one in enumerate(shelves) if one.archive.exists()] == [0, 2, 4, 5]


def test_everything_that_it_depends_on_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "g++"
    compiler.write_text("one")
    tools = replace(TOOLS, cxx=str(compiler))
    keys = {key(TOOLS), key(tools), key(replace(tools, architecture="80")), key(replace(tools, nvcc=None))}
    compiler.write_text("another")
    keys.add(key(tools))
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", "/elsewhere")
    keys.add(key(tools))
    own = tmp_path / "cuda"
    shutil.copytree(Path(shelf.__file__).parent, own, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(shelf, "__file__", str(own / "shelf.py"))
    monkeypatch.setattr(shelf.headers, "HEADERS", own / "include")
    keys.add(key(tools))
    for name in ("brief.py", "include/bindings.cpp"):
        with (own / name).open("a") as file:
            file.write("\n")
        keys.add(key(tools))
    assert len(keys) == 9 and key(tools) in keys


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.slow
def test_a_judge_compiles_nothing_that_another_has_kept(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    first, one = precompiled(tmp_path_factory), shared_shelf(tmp_path_factory)
    kept = one.archive.read_bytes()
    second = Precompiler(replace(one.tools, cxx="false"), tmp_path, one)
    second.wait()
    assert second.made.is_whole and not second.made.pending.exists() and one.archive.read_bytes() == kept
    files = {path.relative_to(first.folder) for path in first.folder.rglob("*") if path.is_file()}
    assert files == {path.relative_to(second.made.folder) for path in second.made.folder.rglob("*") if path.is_file()}
    for path in files:
        assert (first.folder / path).read_bytes() == (second.made.folder / path).read_bytes()
    second.close()


def test_nothing_is_kept_of_what_could_not_be_made(tmp_path: Path) -> None:
    tools = replace(TOOLS, cxx="false", nvcc="false")
    one = Shelf(tmp_path / "kept", tools)
    compiler = Precompiler(tools, tmp_path, one)
    compiler.wait()
    assert not compiler.made.is_whole and not one.archive.exists()
    compiler.close()
