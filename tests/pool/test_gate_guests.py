"""Guests of a gate that leave, fail or are slow at the wrong moment; with real threads, and a real frozen process."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sleepers import Sleeper

from kerneldojo.judging.canary import Canary
from kerneldojo.judging.division import LEAST_PART_BYTES, divide
from kerneldojo.judging.ends import Infrastructure
from kerneldojo.judging.gate import MOST_OVERTAKEN, Gate
from kerneldojo.judging.host import COMPILE_ARENA_BYTES
from kerneldojo.judging.processes import ForkServer, Session, host_arena
from kerneldojo.judging.protocol import Protocol
from kerneldojo.judging.shares import MAX_KEPT
from kerneldojo.judging.stops import stopped
from kerneldojo.judging.surroundings import request

GIB = 1 << 30


@pytest.fixture
def sleeper() -> Generator[Sleeper]:
    process = Sleeper()
    yield process
    process.close()


def finished(thread: threading.Thread) -> bool:
    thread.join(20)
    return not thread.is_alive()


def test_a_window_does_not_wait_for_a_guest_that_has_left() -> None:
    gate = Gate(2)
    inside, leave, opened = threading.Event(), threading.Event(), threading.Event()

    def busy() -> None:
        with gate.admit():
            inside.set()
            leave.wait()

    def measure() -> None:
        with gate.admit() as guest, guest.window():
            opened.set()

    other, thread = threading.Thread(target=busy, daemon=True), threading.Thread(target=measure, daemon=True)
    other.start()
    inside.wait()
    thread.start()
    assert not opened.wait(0.2), "the other is busy"
    leave.set()
    assert finished(thread)
    assert opened.is_set()


@pytest.mark.parametrize("fault", [Infrastructure("it did not answer"), ValueError("a bug")])
def test_a_process_that_is_slow_to_stop_is_told_to_go_on(sleeper: Sleeper, fault: Exception) -> None:
    gate, stop, inside = Gate(2), threading.Event(), threading.Event()
    sleeper.fault = fault

    def other() -> None:
        with gate.admit() as guest:
            guest.sessions.append(sleeper)
            inside.set()
            guest.wait(stop.wait, 60.0)

    thread = threading.Thread(target=other, daemon=True)
    thread.start()
    inside.wait()
    with gate.admit() as guest:
        try:
            with guest.window():
                assert sleeper.is_stopped
        except ValueError:
            assert isinstance(fault, ValueError)
        assert not sleeper.is_stopped
    stop.set()
    assert finished(thread), "the gate was left closed"
    with gate.admit(), gate.admit():
        pass


def test_one_that_is_alone_lets_nobody_in_and_waits_for_those_inside() -> None:
    gate = Gate(3)
    first_leaves, alone_leaves, is_alone, after = (threading.Event() for _ in range(4))

    def first() -> None:
        with gate.admit() as guest:
            guest.wait(first_leaves.wait, 60.0)

    def alone() -> None:
        with gate.admit(gate.first_alone) as guest:
            is_alone.set()
            with guest.window():
                guest.wait(alone_leaves.wait, 60.0)
            assert not guest.had_company

    def late() -> None:
        with gate.admit():
            after.set()

    threads = [threading.Thread(target=work, daemon=True) for work in (first, alone, late)]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    assert not is_alone.is_set()
    first_leaves.set()
    assert is_alone.wait(20)
    assert not after.wait(0.2)
    alone_leaves.set()
    assert all(map(finished, threads))
    assert after.is_set()


def test_who_is_not_inside_yet_stands_still_in_windows_and_is_waited_for_only_while_at_work(sleeper: Sleeper) -> None:
    gate = Gate(2)
    works, is_done, came_in, leave = (threading.Event() for _ in range(4))
    opened, ended = threading.Event(), threading.Event()

    def outside() -> None:
        with gate.approach() as guest:
            guest.sessions.append(sleeper)
            works.set()
            is_done.wait(60)
            with gate.admit(gate.first_alone, guest) as same:
                assert same is guest
                assert guest.is_alone and guest.room == gate.first_alone
                came_in.set()
                leave.wait(60)

    def inside() -> None:
        with gate.admit() as guest:
            with guest.window():
                assert sleeper.is_stopped
                opened.set()
                ended.wait(60)
            assert not guest.had_company

    other, thread = threading.Thread(target=outside, daemon=True), threading.Thread(target=inside, daemon=True)
    other.start()
    works.wait()
    thread.start()
    assert not opened.wait(0.2), "its judge is at work, and a window waits until it stands still"
    is_done.set()
    assert opened.wait(20), "it waits at the entrance, and nobody for it"
    assert not came_in.wait(0.2), "it wants to be alone"
    ended.set()
    assert finished(thread)
    assert came_in.wait(20)
    assert not sleeper.is_stopped
    leave.set()
    assert finished(other)
    with gate.admit(), gate.admit():
        pass


def test_who_leaves_without_having_come_in_is_in_nobodys_way(sleeper: Sleeper) -> None:
    gate = Gate(2)
    with contextlib.suppress(KeyError), gate.approach() as guest:
        guest.sessions.append(sleeper)
        raise KeyError
    with gate.admit() as inside, inside.window():
        assert not sleeper.is_stopped


class Rooms:
    """Threads that go through a gate with rooms for four, two and one; who is inside, and in which order they came."""

    def __init__(self) -> None:
        self.gate = Gate(4, larger=(2,))
        self.came: list[tuple[int, str]] = []
        self._leave: dict[str, threading.Event] = {}
        self._threads: dict[str, threading.Thread] = {}

    def send(self, room: int, name: str) -> None:
        leave = self._leave[name] = threading.Event()

        def go() -> None:
            with self.gate.admit(room) as guest:
                self.came.append((room, name))
                guest.wait(leave.wait, 60.0)

        self._threads[name] = threading.Thread(target=go, daemon=True)
        self._threads[name].start()
        time.sleep(0.05)

    def leave(self, *names: str) -> None:
        for name in names:
            self._leave[name].set()
        assert all(finished(self._threads[name]) for name in names)
        time.sleep(0.05)

    def has_come(self, *names: str) -> bool:
        """Whether they are the last that came."""
        deadline = time.monotonic() + 20
        while not (is_so := sorted(name for _, name in self.came[-len(names) :]) == sorted(names)):
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
        return is_so

    def close(self) -> None:
        for leave in self._leave.values():
            leave.set()
        assert all(map(finished, self._threads.values()))


def test_those_of_one_room_are_inside_at_a_time() -> None:
    rooms = Rooms()
    for room, name in ((0, "a"), (1, "b"), (1, "c"), (1, "d"), (2, "e")):
        rooms.send(room, name)
    assert rooms.came == [(0, "a")]
    rooms.leave("a")
    assert rooms.has_come("a", "b", "c")
    rooms.leave("b")
    assert rooms.has_come("d"), "there is room for two"
    rooms.leave("c")
    assert rooms.has_come("d")
    rooms.leave("d")
    assert rooms.has_come("e")
    rooms.close()


def test_who_needs_another_room_is_passed_by_those_who_do_not_but_not_for_ever() -> None:
    rooms = Rooms()
    rooms.send(0, "first")
    rooms.send(1, "large")
    for number in range(MOST_OVERTAKEN):
        rooms.send(0, f"passes {number}")
        assert rooms.has_come(f"passes {number}")
        rooms.leave(f"passes {number}")
    rooms.send(0, "waits")
    assert rooms.has_come(f"passes {MOST_OVERTAKEN - 1}")
    rooms.leave("first")
    assert rooms.has_come("large")
    rooms.leave("large")
    assert rooms.has_come("waits")
    rooms.close()


def test_what_is_done_beside_windows_holds_nobody_up(sleeper: Sleeper) -> None:
    gate, away, back = Gate(2), threading.Event(), threading.Event()

    def other() -> None:
        with gate.admit() as guest:
            guest.sessions.append(sleeper)
            with guest.beside_windows([sleeper]):
                away.set()
                back.wait(60)
            assert guest.sessions == [sleeper]

    thread = threading.Thread(target=other, daemon=True)
    thread.start()
    away.wait()
    with gate.admit() as guest, guest.window():
        assert sleeper.num_stops == 0
        back.set()
        thread.join(0.2)
        assert thread.is_alive(), "it went on in another's window"
    assert finished(thread)


def test_a_busy_device_is_given_time_to_become_idle() -> None:
    times = iter([10.0] * 15 + [90.0] * 9 + [10.0] * 3)
    canary = Canary(lambda: next(times))
    assert canary.becomes_clean(60.0)
    assert not canary_of(15 * [10.0] + 300 * [20.0]).becomes_clean(0.0)


def canary_of(times: list[float]) -> Canary:
    left = iter(times)
    return Canary(lambda: next(left))


def test_a_hosted_process_stops_at_once_and_goes_on_as_if_nothing_had_been(server: ForkServer) -> None:
    with Session(server, host_arena(COMPILE_ARENA_BYTES), request(Protocol(), "h100")) as session:
        session.freeze()
        session.post("release", start=0, stop=0)
        assert not session._door.has_frame(0.3)
        session.thaw()  # Nobody waits for the answer to this,
        session.freeze()  # so that it comes before the one to this.
        session.thaw()
        session.collect(30.0)
        session.freeze()
        session.kill()
        assert session.ended is not None
        session.freeze()  # What has ended needs no freezing.
        session.thaw()


def test_what_is_stopped_for_a_while_goes_on_whatever_happens_meanwhile(server: ForkServer) -> None:
    with Session(server, host_arena(COMPILE_ARENA_BYTES), request(Protocol(), "h100")) as session:
        with pytest.raises(ZeroDivisionError), stopped([session]):
            session.post("release", start=0, stop=0)
            assert not session._door.has_frame(0.3)
            raise ZeroDivisionError
        session.collect(30.0)
        session.kill()
        with stopped([session]):  # What has ended needs no stopping.
            pass


def test_several_are_told_to_stop_before_any_is_waited_for(server: ForkServer) -> None:
    wanted = request(Protocol(), "h100")
    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(Session(server, host_arena(COMPILE_ARENA_BYTES), wanted)) for _ in range(3)]
        sessions[1].wait_started()
        sessions[1].kill()
        for _ in range(2):
            for session in sessions:
                session.order_freeze()
            for session in sessions:
                session.wait_frozen()
            for session in (sessions[0], sessions[2]):
                session.post("release", start=0, stop=0)
                assert not session._door.has_frame(0.1)
            for session in sessions:
                session.thaw()
            for session in (sessions[0], sessions[2]):
                session.collect(30.0)


def test_a_process_can_be_frozen_before_it_has_started_and_killed_while_it_is(server: ForkServer) -> None:
    with Session(server, host_arena(COMPILE_ARENA_BYTES), request(Protocol(), "h100")) as session:
        session.freeze()
        pids = session.pids()
        assert pids
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@given(st.integers(1, 32), st.integers(8, 192))
def test_what_is_shared_out_is_there(num_verdicts: int, gib: int) -> None:
    shares = divide(num_verdicts, gib * GIB)
    assert 1 <= shares.capacity <= num_verdicts
    assert 0 <= shares.num_kept <= MAX_KEPT
    assert shares.most_bytes <= gib * GIB or shares.capacity == 1
    if shares.capacity > 1:
        assert shares.part_bytes >= LEAST_PART_BYTES
    assert divide(num_verdicts + 1, gib * GIB).capacity >= shares.capacity


def test_an_h200_has_room_for_the_ten_problems_of_the_benchmark() -> None:
    for num_verdicts in (4, 8):
        shares = divide(num_verdicts, 139 * GIB)
        assert shares.capacity == num_verdicts
        assert shares.capacity + shares.num_kept >= 10
        assert shares.inputs_bytes >= 10 * (64 << 20), "windows of ten calls of 64 MB, at least"
