"""Windows that follow each other under one stop, with real threads and real processes that are frozen."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor

import pytest
from pooled import wait_until
from sleepers import Sleeper

from kerneldojo.judging.cores import Cores
from kerneldojo.judging.gate import Gate
from kerneldojo.judging.guest import Guest

ALL = sorted(os.sched_getaffinity(0))


class Budget:
    seconds = 0.0

    def give_back(self, seconds: float) -> None:
        self.seconds += seconds


class Verdict:
    """One verdict in a thread of its own: it is at work or waits in a command, has a window, and comes to its end."""

    def __init__(self, gate: Gate, act: Callable[[Verdict], None], *, is_busy: bool) -> None:
        self.process, self.budget = Sleeper(), Budget()
        self.may_ask, self.is_inside, self.may_leave, self.has_left = (threading.Event() for _ in range(4))
        self._gate, self._act, self._is_busy = gate, act, is_busy
        self.guest: Guest | None = None
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=self._judge, daemon=True)
        self._thread.start()
        assert self._has_begun.wait(20)

    def _judge(self) -> None:
        with self._gate.admit() as guest:
            self.guest = guest
            guest.sessions.append(self.process)
            guest.budgets.append(self.budget)
            self._has_begun.set()
            if self._is_busy:
                assert self.may_ask.wait(60)
            else:
                guest.wait(self.may_ask.wait, 600.0)
            with contextlib.suppress(RuntimeError):
                self._act(self)
            self.has_left.set()

    def window(self) -> None:
        assert self.guest is not None
        with self.guest.window():
            self.is_inside.set()
            assert self.may_leave.wait(60)

    def end(self) -> None:
        self.may_ask.set()
        self.may_leave.set()
        self._thread.join(20)
        assert not self._thread.is_alive(), "the gate was left closed"


@pytest.fixture
def verdicts() -> Generator[list[Verdict]]:
    made: list[Verdict] = []
    yield made
    for verdict in made:
        verdict.process.close()


def at_work(gate: Gate, verdicts: list[Verdict], num: int, act: Callable[[Verdict], None] = Verdict.window) -> None:
    """So many that are at work and ask for windows, and after them one that waits in a command."""
    verdicts += [Verdict(gate, act, is_busy=True) for _ in range(num)]
    verdicts.append(Verdict(gate, act, is_busy=False))


def ask(gate: Gate, *asking: Verdict) -> None:
    """Each asks for a window, one after the other: the first one's opens when no other is at work any more."""
    for verdict in asking:
        verdict.may_ask.set()
        wait_until(lambda verdict=verdict: verdict.guest in (gate._owner, *gate._windows), 20)
    assert asking[0].is_inside.wait(20)


def test_the_device_is_handed_to_who_waits_for_it(verdicts: list[Verdict]) -> None:
    gate = Gate(3, most_in_a_row=4)
    at_work(gate, verdicts, 2)
    first, second, bystander = verdicts
    ask(gate, first, second)
    assert second.process.is_stopped
    assert bystander.process.is_stopped
    first.may_leave.set()
    assert second.is_inside.wait(20)
    assert first.process.is_stopped, "it would be in another's window"
    assert not second.process.is_stopped
    time.sleep(0.2)
    assert not first.has_left.is_set(), "its judge would be in another's window"
    assert bystander.process.num_stops == 1, "it stood still all the time"
    second.may_leave.set()
    assert first.has_left.wait(20)
    assert second.has_left.wait(20)
    wait_until(lambda: not any(verdict.process.is_stopped for verdict in verdicts), 20)
    assert first.budget.seconds > 0.15, "it was held, and does not pay for that"
    for verdict in verdicts:
        verdict.end()


@pytest.mark.parametrize(("most", "num_stops"), [(1, 3), (2, 2), (3, 1)])
def test_no_more_windows_follow_each_other_than_are_allowed(verdicts: list[Verdict], most: int, num_stops: int) -> None:
    gate = Gate(4, most_in_a_row=most)
    at_work(gate, verdicts, 3)
    *asking, bystander = verdicts
    ask(gate, *asking)
    for verdict in asking:
        assert verdict.is_inside.wait(20)
        assert bystander.process.is_stopped
        assert not verdict.process.is_stopped
        verdict.may_leave.set()
    for verdict in asking:
        verdict.end()
    assert bystander.process.num_stops == num_stops
    assert not bystander.process.is_stopped
    bystander.end()


def test_a_window_that_fails_is_handed_to_nobody(verdicts: list[Verdict]) -> None:
    def fail(verdict: Verdict) -> None:
        assert verdict.guest is not None
        with verdict.guest.window():
            verdict.is_inside.set()
            assert verdict.may_leave.wait(60)
            raise RuntimeError("in a window")

    gate = Gate(3, most_in_a_row=4)
    verdicts.append(Verdict(gate, fail, is_busy=True))
    at_work(gate, verdicts, 1)
    failing, second, bystander = verdicts
    ask(gate, failing, second)
    failing.may_leave.set()
    assert failing.has_left.wait(20), "it need not wait for others' windows"
    assert second.is_inside.wait(20)
    assert bystander.process.num_stops == 2
    for verdict in verdicts:
        verdict.end()


def test_who_cannot_be_stopped_keeps_nobody_waiting(verdicts: list[Verdict]) -> None:
    """A bug, not an end of its own: the window is closed as without anybody who waits."""
    gate = Gate(3, most_in_a_row=4)
    at_work(gate, verdicts, 2)
    first, second, _ = verdicts
    ask(gate, first, second)
    first.process.fault = RuntimeError("a bug")
    first.may_leave.set()
    assert first.has_left.wait(20)
    first.process.fault = None
    assert second.is_inside.wait(20)
    for verdict in verdicts:
        verdict.end()
    assert not any(verdict.process.is_stopped for verdict in verdicts)


def test_in_every_window_everybody_else_stands_still() -> None:
    gate, lock = Gate(4, most_in_a_row=3), threading.Lock()
    inside: dict[Guest, Sleeper] = {}
    num_inside, wrong = 0, list[str]()

    def verdict(_: int) -> None:
        nonlocal num_inside
        process = Sleeper()
        try:
            with gate.admit() as guest:
                guest.sessions.append(process)
                with lock:
                    inside[guest] = process
                for _ in range(4):
                    guest.wait(lambda seconds: bool(time.sleep(0.001)) or True, 5.0)
                    if num_inside:
                        wrong.append("a judge was at work in another's window")
                    with guest.window():
                        num_inside += 1
                        others = [other for one, other in list(inside.items()) if one is not guest]
                        if num_inside > 1 or process.is_stopped or not all(other.is_stopped for other in others):
                            wrong.append("a window was not somebody's alone")
                        time.sleep(0.001)
                        num_inside -= 1
                    if num_inside:
                        wrong.append("a judge went on in another's window")
                with lock:
                    del inside[guest]
        finally:
            process.close()

    with ThreadPoolExecutor(12) as threads:
        list(threads.map(verdict, range(24)))
    assert not wrong


@pytest.mark.skipif(len(ALL) < 2, reason="needs two cores")
def test_cores_are_cleared_once_and_the_next_one_is_seated_on_them(verdicts: list[Verdict]) -> None:
    reserved, rest = {ALL[0]}, set(ALL[1:])
    gate = Gate(3, Cores(reserved, rest), most_in_a_row=4)
    at_work(gate, verdicts, 2)
    first, second, bystander = verdicts
    ask(gate, first, second)
    assert masks(first, second, bystander) == [reserved, rest, rest]
    first.may_leave.set()
    assert second.is_inside.wait(20)
    wait_until(lambda: masks(first, second, bystander) == [rest, reserved, rest], 20)
    assert {thread: os.sched_getaffinity(thread) for thread in judges(first, second)} == {
        first._thread.native_id: rest,
        second._thread.native_id: reserved,
    }
    for verdict in verdicts[:2]:
        verdict.may_leave.set()
    assert first.has_left.wait(20)
    wait_until(lambda: masks(*verdicts) == [set(ALL)] * 3, 20)
    for verdict in verdicts:
        verdict.end()
    assert os.sched_getaffinity(0) == set(ALL)


def masks(*verdicts: Verdict) -> list[set[int]]:
    return [os.sched_getaffinity(verdict.process.process.pid) for verdict in verdicts]


def judges(*verdicts: Verdict) -> list[int]:
    return [verdict._thread.native_id for verdict in verdicts if verdict._thread.native_id is not None]


def test_a_row_has_at_least_one_window() -> None:
    with pytest.raises(ValueError, match="in a row"):
        Gate(2, most_in_a_row=0)
