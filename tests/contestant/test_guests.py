"""A contestant that is forked beside its keeper is as much in its keeper's hand as one that is forked below it."""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sandboxed import FORKED, HOST, inside, start

from kerneldojo.contestant.sandbox import (
    Features,
    Limits,
    Policy,
    Porter,
    SandboxError,
    begin,
    guests,
    linux,
    sweeping,
    watch,
)
from kerneldojo.contestant.sandbox.processes import children, descendants, is_alive

pytestmark = pytest.mark.skipif(not HOST.takes_guests, reason="no namespaces that a guest could enter")
USR = (Path("/usr"),)


def _becomes_true(what: Callable[[], bool]) -> bool:
    until = time.monotonic() + 30
    while not what() and time.monotonic() < until:
        time.sleep(0.005)
    return what()


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("room", [pytest.param(HOST, id="guest"), pytest.param(FORKED, id="forked")])
def test_both_ways_end_in_the_same_world(scratch: Path, room: Features) -> None:
    def look() -> dict[str, object]:
        kinds = ("pid", "net", "ipc", "mnt")
        groups = sorted(Path("/proc/self/cgroup").read_text().splitlines())
        return {
            "namespaces": {kind: str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in kinds},
            "processes": sorted(folder.name for folder in Path("/proc").iterdir() if folder.name.isdigit()),
            "root": sorted(node.name for node in Path("/dev").iterdir()),
            "grouped": any("dojo-" in group for group in groups),
            "uid": [os.getuid() == 0, os.getgroups()],
            "capabilities": [line for line in Path("/proc/self/status").read_text().splitlines() if "Cap" in line],
        }

    seen = inside(look, scratch, room, readable=USR).value
    for kind, name in seen.pop("namespaces").items():
        assert str(Path(f"/proc/self/ns/{kind}").readlink()) != name
    assert seen == {
        "processes": ["1", "2"],
        "root": ["fd", "full", "null", "random", "shm", "stderr", "stdin", "stdout", "urandom", "zero"],
        "grouped": bool(HOST.cgroup_v1 or HOST.cgroup_v2),
        "uid": [not HOST.own_uid, []],
        "capabilities": [f"Cap{kind}:\t0000000000000000" for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")],
    }


def test_it_is_the_child_of_who_forked_it_and_nobody_else_stays_a_zombie(scratch: Path) -> None:
    contained = start(lambda: os._exit(7), scratch, readable=USR)
    assert contained.pid is not None
    ended = contained.result()
    assert (ended.cause, ended.exit_code, ended.signal) == ("exited", 7, None)
    with pytest.raises(ChildProcessError):
        os.waitpid(contained.pid, 0)

    pid = os.fork()
    if pid == 0:
        os._exit(3)
    assert _becomes_true(lambda: not is_alive(pid))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3, "other children are left to who waits for them"


@pytest.mark.parametrize("has_alarm", [True, False])
def test_a_death_is_noticed_whose_signal_comes_too_late_for_a_handler(scratch: Path, has_alarm: bool) -> None:
    """As one that arrives between the last instruction before a system call that waits, and that call."""
    signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        if not has_alarm:  # Whoever took it for themselves did not ask.
            signal.set_wakeup_fd(-1)
        contained = start(lambda: os._exit(7), scratch, readable=USR)
        assert contained.result().exit_code == 7
        asked = start(lambda: time.sleep(0.2), scratch, readable=USR)
        assert _becomes_true(lambda: asked.memory_bytes() == 0), "it has ended"
        assert asked.result().exit_code == 0
    finally:
        guests.watch()


def test_a_fork_has_an_alarm_of_its_own() -> None:
    def alarms() -> list[str]:
        links = [Path(f"/proc/self/fd/{descriptor}") for descriptor in guests._alarm or ()]
        return [str(link.readlink()) for link in links]

    mine = alarms()
    assert mine
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            deaf = signal.set_wakeup_fd(-1) == -1 and alarms() == []
            guests.watch()
            os.write(writing, b"!" if deaf and alarms() and not set(alarms()) & set(mine) else b"?")
        finally:
            os._exit(0)
    assert os.read(reading, 1) == b"!"
    os.waitpid(pid, 0)
    os.close(reading)
    os.close(writing)


def test_parents(scratch: Path) -> None:
    contained = start(lambda: time.sleep(60), scratch, readable=USR)
    assert contained.pid is not None
    assert _parent(contained.pid) == os.getpid()
    assert _parent(contained.keeper) != os.getpid()
    assert contained.pid not in descendants(contained.keeper)
    ended = contained.kill()
    assert (ended.cause, ended.signal) == ("killed", signal.SIGKILL)
    assert not is_alive(contained.keeper)


def test_without_its_porter_a_fork_server_forks_keepers_itself(scratch: Path) -> None:
    porter = Porter()
    os.kill(porter.pid, signal.SIGKILL)
    porter.close()
    policy = Policy(scratch=scratch, readable=USR, limits=Limits(deadline_seconds=60))
    contained = begin(lambda: os._exit(5), policy, HOST, porter)
    contained.wait_enclosed()
    assert _parent(contained.keeper) == os.getpid()
    assert contained.result().exit_code == 5


def test_a_porter_ends_with_the_process_that_started_it() -> None:
    reading, writing = os.pipe()
    server = os.fork()
    if server == 0:
        try:
            started = Porter()
            os.write(writing, str(started.pid).encode())
            time.sleep(60)
        finally:
            os._exit(1)
    porter = int(os.read(reading, 32))
    os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)
    os.close(reading)
    os.close(writing)
    assert _becomes_true(lambda: not is_alive(porter))


def test_a_keeper_that_dies_before_its_guest_has_come_leaves_nothing(scratch: Path) -> None:
    porter = Porter()
    contained = begin(lambda: time.sleep(60), Policy(scratch=scratch, readable=USR), HOST, porter)
    select.select([contained], [], [])  # There is room.
    (kept,) = children(porter.pid)
    first = descendants(kept)
    os.kill(kept, signal.SIGKILL)
    with pytest.raises(SandboxError):
        contained.wait_enclosed()
    assert _becomes_true(lambda: not any(map(is_alive, first)))
    porter.close()


def test_an_owner_that_does_not_come_leaves_nothing(scratch: Path) -> None:
    porter = Porter()
    contained = begin(lambda: time.sleep(60), Policy(scratch=scratch, readable=USR), HOST, porter)
    select.select([contained], [], [])
    below = descendants(porter.pid)
    assert len(below) == 2
    contained._events.close()
    contained._control.close()
    assert _becomes_true(lambda: not any(map(is_alive, below)))
    porter.close()


def test_what_rests_is_stopped_and_goes_on_when_it_is_woken(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_TICK_AT_REST_SECONDS", 0.05)
    if "freeze" not in HOST.cgroup_v2:
        pytest.skip("only the unified hierarchy stops what rests")
    count = mmap.mmap(-1, 8)

    def main() -> None:
        number = ctypes.c_uint64.from_buffer(count)
        while True:
            number.value += 1
            time.sleep(0.001)

    def counted() -> int:
        return int.from_bytes(count[:8], "little")

    def stands_still() -> bool:
        before = counted()
        time.sleep(0.03)
        return counted() == before

    porter = Porter()
    contained = begin(main, Policy(scratch=scratch, readable=USR), HOST, porter)
    contained.wait_enclosed()
    assert _becomes_true(lambda: counted() > 0)
    contained.rest(True)
    assert _becomes_true(stands_still)
    contained.rest(False)
    assert _becomes_true(lambda: not stands_still())
    contained.freeze()
    contained.rest(True)
    time.sleep(0.2)
    assert stands_still()
    contained.rest(False)
    assert stands_still(), "what was ordered to stand still is not woken by the end of its rest"
    contained.thaw()
    contained.rest(True)
    assert _becomes_true(stands_still)
    assert contained.kill().cause == "killed"
    porter.close()


def test_a_keeper_ends_though_nobody_reaps_its_guest(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the judge is the first process of a container, and reaps none but its own."""
    monkeypatch.setattr(sweeping, "_ORPHANED_SECONDS", 0.2)
    reading, writing = os.pipe()
    judge = os.fork()
    if judge == 0:
        try:
            linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
            server = os.fork()
            if server == 0:
                porter = Porter()
                contained = begin(lambda: time.sleep(60), Policy(scratch=scratch, readable=USR), HOST, porter)
                contained.wait_enclosed()
                os.write(writing, f"{contained.keeper} {contained.pid}".encode())
                time.sleep(60)
            os.waitpid(server, 0)
            time.sleep(60)
        finally:
            os._exit(1)
    try:
        kept, guest = map(int, os.read(reading, 64).split())
        (server,) = children(judge)
        os.kill(server, signal.SIGKILL)
        assert _becomes_true(lambda: not is_alive(guest))
        assert _becomes_true(lambda: not is_alive(kept))
    finally:
        os.kill(judge, signal.SIGKILL)
        os.waitpid(judge, 0)
        os.close(reading)
        os.close(writing)


def test_features_survive_the_way_to_the_porter() -> None:
    assert Features.from_json(HOST.as_json()) == HOST
