"""What hosted code left in a folder is measured, and cleared away, however it nested it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kerneldojo.contestant.removal import remove_tree
from kerneldojo.contestant.sandbox.processes import folder_size
from kerneldojo.contestant.scratch import PREFIX, sweep


@pytest.fixture
def shallow() -> Iterator[int]:
    """Python recurses no deeper than so many levels from here; a thousand folders take a second to clear away."""
    limit, depth, frame = sys.getrecursionlimit(), 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    sys.setrecursionlimit(depth + 100)
    yield 150
    sys.setrecursionlimit(limit)


def nest(folder: Path, depth: int, name: str = "d") -> None:
    folder.mkdir(exist_ok=True)
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=here))
    os.close(here)


def test_folders_deeper_than_python_recurses_are_removed(tmp_path: Path, shallow: int) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    left = tmp_path / "left"
    nest(left, shallow)
    (left / "elsewhere").symlink_to(kept)
    remove_tree(left)
    assert not left.exists()
    assert kept.exists()


def test_such_folders_of_a_judge_that_was_killed_stop_no_other(tmp_path: Path, shallow: int) -> None:
    left = tmp_path / f"{PREFIX}left"
    nest(left, shallow)
    sweep(tmp_path)
    assert not left.exists()


def test_what_lies_too_deep_to_be_looked_at_counts_as_too_many(tmp_path: Path) -> None:
    nest(tmp_path / "left", 25, "d" * 200)
    assert folder_size(tmp_path, 1000)[1] > 1000
    remove_tree(tmp_path / "left")
    assert folder_size(tmp_path, 1000)[1] == 0
