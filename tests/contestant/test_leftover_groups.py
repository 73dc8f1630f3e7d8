"""What a killed judge leaves: control groups that the next one clears away, and folders that it removes."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandboxed import HOST, start

from kerneldojo.contestant.sandbox import Policy, begin, cgroups, leftovers, probe, processes, sweep_groups
from kerneldojo.contestant.sandbox.cgroups import Group, HostGroups, host_groups
from kerneldojo.contestant.sandbox.leftovers import group_name, left_groups
from kerneldojo.contestant.scratch import PREFIX, Scratch


def test_an_empty_group_that_was_left_is_made_anew_and_one_in_use_is_not() -> None:
    features = probe()
    if not (features.cgroup_v2 or features.cgroup_v1):
        pytest.skip("no control groups here")
    name = f"dojo-left-{os.getpid()}"
    Group(name, features.cgroup_v2, features.cgroup_v1)
    again = Group(name, features.cgroup_v2, features.cgroup_v1)
    inside = os.fork()
    if inside == 0:
        try:
            again.enter()
            time.sleep(60)
        finally:
            os._exit(0)
    until = time.monotonic() + 10
    while inside not in again.processes() and time.monotonic() < until:
        time.sleep(0.01)
    try:
        with pytest.raises(OSError, match="busy"):
            Group(name, features.cgroup_v2, features.cgroup_v1)
    finally:
        os.kill(inside, signal.SIGKILL)
        os.waitpid(inside, 0)
        again.remove()
    assert not any(folder.exists() for folder in again.folders.values())


def _folders(name: str) -> set[str]:
    """Groups of that name anywhere; others' groups come and go while we look, which `os.walk` does not mind."""
    folders = (folder for _, folders, _ in os.walk("/sys/fs/cgroup") for folder in folders)
    return {folder for folder in folders if folder.startswith(name)}


@pytest.fixture
def groups_apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Groups below one of our own, where no fork server that another test begins sweeps before we have looked."""
    host = host_groups()
    places = {kind: place and place / f"apart-{os.getpid()}" for kind, place in vars(host).items()}
    made = {place for place in places.values() if place is not None}
    for place in made:
        with contextlib.suppress(OSError):  # A hierarchy that we may not write, and that the probe does not offer.
            place.mkdir()
    for module in (cgroups, leftovers):
        monkeypatch.setattr(module, "host_groups", lambda: HostGroups(**places))
    yield
    for place in made:
        if place.exists():
            place.rmdir()


@pytest.mark.skipif(not (HOST.cgroup_v2 or HOST.cgroup_v1), reason="no control groups here")
@pytest.mark.usefixtures("groups_apart")
def test_what_a_judge_killed_with_its_keeper_left_is_swept_and_what_lives_is_not(tmp_path: Path) -> None:
    (tmp_path / "dead").mkdir()
    (tmp_path / "living").mkdir()
    reading, writing = os.pipe()
    judge = os.fork()
    if judge == 0:
        contained = begin(lambda: time.sleep(60), Policy(scratch=tmp_path / "dead", readable=(Path("/usr"),)), HOST)
        contained.wait_enclosed()
        os.write(writing, f"{contained.keeper} {contained.pid}".encode())
        signal.pause()
    keeper, contestant = map(int, os.read(reading, 64).split())
    living = start(lambda: time.sleep(60), tmp_path / "living")
    for pid in (keeper, judge):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(judge, 0)
    while processes.is_alive(keeper):
        time.sleep(0.001)
    assert (left := _folders(f"dojo-{keeper}-")), "nobody is left to remove it"
    assert left <= set(sweep_groups())
    assert not _folders(f"dojo-{keeper}-") and not processes.is_alive(contestant)
    assert living.pid and processes.is_alive(living.pid) and _folders(f"dojo-{living.keeper}-")
    living.kill()


@pytest.mark.skipif(not (HOST.cgroup_v2 or HOST.cgroup_v1), reason="no control groups here")
@pytest.mark.usefixtures("groups_apart")
def test_a_process_id_that_was_given_away_again_saves_no_group_and_costs_none() -> None:
    pid, born, namespace = group_name().removeprefix("dojo-").split("-")
    ours = Group(f"dojo-{pid}-{born}-{namespace}", HOST.cgroup_v2, HOST.cgroup_v1)
    elsewhere = Group(f"dojo-{pid}-{int(born) - 1}-{int(namespace) + 1}", HOST.cgroup_v2, HOST.cgroup_v1)
    earlier = Group(f"dojo-{pid}-{int(born) - 1}-{namespace}", HOST.cgroup_v2, HOST.cgroup_v1)
    try:
        left = set(left_groups())
        assert left.issuperset(earlier.folders.values())
        assert left.isdisjoint([*ours.folders.values(), *elsewhere.folders.values()])
    finally:
        for group in (ours, elsewhere, earlier):
            group.remove()


def test_folders_of_the_dead_are_removed_and_those_of_the_living_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    held = Scratch()
    reading, writing = os.pipe()
    judge = os.fork()
    if judge == 0:
        folder = Scratch().folder
        (folder / "something").mkdir()
        os.write(writing, str(folder).encode())
        signal.pause()
    left = Path(os.read(reading, 4096).decode())
    Scratch().close()
    assert left.is_dir(), "its owner lives"
    os.kill(judge, signal.SIGKILL)
    os.waitpid(judge, 0)
    Scratch().close()
    assert [folder.name for folder in tmp_path.iterdir()] == [held.folder.name]
    assert held.folder.name.startswith(PREFIX)
    held.close()
    assert not list(tmp_path.iterdir())
