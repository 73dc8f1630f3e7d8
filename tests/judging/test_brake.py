"""The brake: who stops a process, its judge or its keeper, and that the two never work against each other."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerneldojo.contestant.sandbox import Features
from kerneldojo.contestant.sandbox.freezer import UNIFIED, VERSION_1, Freezer
from kerneldojo.judging.brake import Brake
from kerneldojo.judging.host import COMPILE_ARENA_BYTES
from kerneldojo.judging.processes import ForkServer, Session, host_arena
from kerneldojo.judging.protocol import Protocol
from kerneldojo.judging.stops import stopped
from kerneldojo.judging.surroundings import request

WANTED = request(Protocol(), "h100")
STEPS = ("rest", "wake", "stop", "release", "keeper", "answer", "tick")


class Keeper:
    """What a keeper does with orders, in their order and as late as it likes, and with what rests."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / UNIFIED
        self.orders = deque[str]()
        self.answers = 0
        self.is_resting = self.is_frozen = self.is_stopped_at_rest = False

    def carry_out(self) -> None:
        order = self.orders.popleft()
        if order in ("rest", "wake"):
            self.is_resting = order == "rest"
            if self.is_stopped_at_rest:
                self.stop_at_rest(False)
        else:
            self.is_stopped_at_rest, self.is_frozen = False, order == "freeze"
            self.file.write_text(str(int(self.is_frozen)))
            self.answers += 1

    def stop_at_rest(self, stop: bool) -> None:
        if not self.is_frozen:
            self.file.write_text(str(int(stop)))
            self.is_stopped_at_rest = stop

    def tick(self) -> None:
        if self.is_resting:
            self.stop_at_rest(not self.is_stopped_at_rest)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("group")


def fresh_group(folder: Path) -> Path:
    """A folder with the files of a group in which nothing runs."""
    (folder / UNIFIED).write_text("0")
    (folder / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    return folder


@given(st.lists(st.sampled_from(STEPS), max_size=40))
def test_what_was_stopped_stands_still_whatever_its_keeper_does_meanwhile(folder: Path, steps: list[str]) -> None:
    keeper = Keeper(fresh_group(folder))
    brake = Brake(keeper.orders.append)
    brake.fit(str(folder / UNIFIED))
    is_wanted = False

    def hear() -> None:
        for _ in range(keeper.answers):
            brake.hear_answer()
        keeper.answers = 0

    try:
        for step in steps:
            if step in ("rest", "wake"):
                brake.rest(step == "rest")
            elif step == "stop" and not is_wanted:
                is_wanted = True
                brake.stop()
                while brake.is_owed:  # As `Session.wait_frozen`.
                    if keeper.orders:
                        keeper.carry_out()
                    hear()
            elif step == "release" and is_wanted:
                is_wanted = False
                brake.release()
            elif step == "keeper" and keeper.orders:
                keeper.carry_out()
            elif step == "answer":
                hear()
            elif step == "tick":
                keeper.tick()
            if is_wanted:
                assert keeper.file.read_text() == "1"
        while keeper.orders:
            keeper.carry_out()
        hear()
        if not is_wanted and not keeper.is_resting:
            assert keeper.file.read_text() == "0", "it never goes on again"
    finally:
        brake.close()


def test_what_rests_is_its_keepers_until_it_has_answered_afterwards(folder: Path) -> None:
    keeper = Keeper(fresh_group(folder))
    brake = Brake(keeper.orders.append)
    brake.fit(str(folder / UNIFIED))
    assert brake.is_direct
    brake.rest(True)
    assert not brake.is_direct
    brake.rest(False)
    assert not brake.is_direct
    brake.stop()
    assert list(keeper.orders) == ["rest", "wake", "freeze"]
    assert not brake.is_held
    brake.hear_answer()
    brake.release()
    assert not brake.is_direct
    brake.hear_answer()
    brake.stop()
    assert brake.is_held
    assert list(keeper.orders)[3:] == ["thaw"]
    brake.close()


def test_stopping_it_directly_tells_its_keeper_nothing(folder: Path) -> None:
    orders: list[str] = []
    brake = Brake(orders.append)
    assert not brake.stop_directly()
    brake.fit(str(fresh_group(folder) / UNIFIED))
    assert brake.stop_directly()
    assert (folder / UNIFIED).read_text() == "1"
    brake.release()
    assert (folder / UNIFIED).read_text() == "0"
    assert not orders
    brake.rest(True)
    assert not brake.stop_directly()
    assert (folder / UNIFIED).read_text() == "0"
    brake.close()


@pytest.mark.parametrize("file", [None, "/nonexistent/cgroup.freeze"])
def test_without_a_freezer_its_keeper_does_everything(file: str | None) -> None:
    orders: list[str] = []
    brake = Brake(orders.append)
    brake.fit(file)
    brake.stop()
    assert brake.is_owed
    brake.hear_answer()
    brake.release()
    assert orders == ["freeze", "thaw"]


def test_both_kinds_of_groups_are_told_in_their_words(tmp_path: Path) -> None:
    unified, old = fresh_group(tmp_path) / UNIFIED, tmp_path / VERSION_1
    old.write_text("THAWED")
    for file, state, words in ((unified, tmp_path / "cgroup.events", "01"), (old, old, ("THAWED", "FROZEN"))):
        with contextlib.closing(Freezer(file)) as freezer:
            for frozen in (True, False):
                freezer.order(frozen)
                assert file.read_text() == words[frozen]
                if state is not file:
                    assert not freezer.holds(frozen)
                    state.write_text(f"populated 1\nfrozen {int(frozen)}\n")
                assert freezer.holds(frozen)
                assert not freezer.holds(not frozen)


@pytest.fixture
def session(server: ForkServer) -> Generator[Session]:
    with Session(server, host_arena(COMPILE_ARENA_BYTES), WANTED) as session:
        session.wait_started()
        features = Features.from_json(server.features)
        if "freeze" not in features.cgroup_v2 and "freezer" not in features.cgroup_v1:
            pytest.skip("no group can be stopped here")
        yield session


def stands_still(session: Session) -> bool:
    session.post("release", start=0, stop=0)
    return not session.has_answered() and not session._door.has_frame(0.2)


def test_a_process_is_stopped_again_and_again_without_its_fork_server(server: ForkServer, session: Session) -> None:
    assert server._process is not None
    os.kill(server._process.pid, 19)  # SIGSTOP: it can do nothing for anybody.
    try:
        for _ in range(20):
            session.freeze()
            assert session._brake.is_held
            assert stands_still(session)
            session.thaw()
            session.collect(30.0)
    finally:
        os.kill(server._process.pid, 18)


def test_one_that_rests_while_it_is_stopped_stays_so(session: Session) -> None:
    session.freeze()
    session.rest(True)
    assert not session._brake.is_held, "its keeper knows"
    time.sleep(1.5)  # More than a tick of its keeper, which lets what rests go on now and then.
    assert stands_still(session)
    session.rest(False)
    assert not session._brake.is_direct, "it is not known to be left alone"
    assert not session._door.has_frame(0.2)
    session.thaw()
    session.collect(30.0)
    session.freeze()
    session.thaw()
    while session._brake.is_owed:
        session._hear(30.0)
    session.freeze()
    assert session._brake.is_held
    assert stands_still(session)
    session.thaw()
    session.collect(30.0)


def test_one_that_is_killed_while_it_stands_still_ends(session: Session) -> None:
    session.freeze()
    assert session._brake.is_held
    pids = session.pids()
    session.kill()
    assert session.ended is not None
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    session.freeze()
    session.thaw()


def test_one_that_ended_by_itself_can_be_stopped_all_the_same(session: Session) -> None:
    session.freeze()
    session.thaw()
    os.kill(session._pid, 9)
    until = time.monotonic() + 20
    while Path(f"/proc/{session._pid}").exists() and time.monotonic() < until:
        time.sleep(0.01)
    with stopped([session]):
        pass
    session.kill()
    assert session.ended is not None
