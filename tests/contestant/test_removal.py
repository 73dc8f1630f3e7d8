"""Folders of shapes that only somebody who means harm gives them."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from kerneldojo.contestant.removal import remove_tree
from kerneldojo.contestant.scratch import PREFIX, sweep


def nest(folder: Path, levels: int) -> None:
    """Directories within each other, deeper than a path is long and than calls may be nested."""
    folder.mkdir()
    inner = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=inner)
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=inner))
        deeper = os.open("d", os.O_RDONLY, dir_fd=inner)
        os.close(inner)
        inner = deeper
    os.close(inner)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    (kept / "inner").mkdir(parents=True)
    (kept / "file").write_text("x")
    left = tmp_path / "left"
    (left / "a" / "b").mkdir(parents=True)
    for where in (left, left / "a", left / "a" / "b"):
        (where / "folder").symlink_to(kept)
        (where / "file").symlink_to(kept / "file")
        (where / "nowhere").symlink_to("nowhere")
        os.mkfifo(where / "pipe")
    remove_tree(left)
    remove_tree(tmp_path / "not there")
    (tmp_path / "link").symlink_to(kept)
    remove_tree(tmp_path / "link")
    assert names(tmp_path) == ["kept", "link"] and names(kept) == ["file", "inner"]


def test_what_a_killed_judge_left_never_stops_the_next(tmp_path: Path) -> None:
    nest(tmp_path / f"{PREFIX}dead", 1200)
    nest(tmp_path / f"{PREFIX}alive", 3)
    lock = os.open(tmp_path / f"{PREFIX}alive", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    sweep(tmp_path)
    os.close(lock)
    assert names(tmp_path) == [f"{PREFIX}alive"]
