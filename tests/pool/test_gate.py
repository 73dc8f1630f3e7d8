"""The gate of a device, with real threads and real processes that are frozen."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

import pytest
from pooled import wait_until

from kerneldojo.judging.canary import Canary
from kerneldojo.judging.gate import Gate
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.stops import Freezable, freeze, thaw


class Ticking:
    """A real process that writes a line every 10 ms, stopped and continued by signals, as a session is."""

    def __init__(self) -> None:
        command = ["sh", "-c", "while :; do echo tick; sleep 0.01; done"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        self.ended = None
        self.is_frozen = False

    def pids(self) -> list[int]:
        return [self.process.pid]

    def order_freeze(self) -> None:
        os.killpg(self.process.pid, signal.SIGSTOP)

    def wait_frozen(self, timeout: float = 5.0) -> None:
        self.is_frozen = True

    def thaw(self) -> None:
        os.killpg(self.process.pid, signal.SIGCONT)
        self.is_frozen = False

    def hears(self, seconds: float) -> bool:
        assert self.process.stdout is not None
        return bool(select.select([self.process.stdout], [], [], seconds)[0])

    def drain(self) -> int:
        count = 0
        assert self.process.stdout is not None
        while self.hears(0.0):
            count += len(os.read(self.process.stdout.fileno(), 1 << 16))
        return count

    def close(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Budget:
    def __init__(self) -> None:
        self.seconds = 0.0

    def give_back(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def ticking() -> Generator[Ticking]:
    process = Ticking()
    yield process
    process.close()


def test_a_window_freezes_the_processes_of_others_and_gives_their_time_back(ticking: Ticking) -> None:
    gate, budget = Gate(2), Budget()
    in_command, stop = threading.Event(), threading.Event()
    left: list[float] = []

    def other() -> None:
        with gate.admit() as guest:
            guest.sessions.append(ticking)
            guest.budgets.append(budget)
            in_command.set()
            left.append(guest.wait(lambda seconds: stop.wait(seconds), 30.0))

    thread = threading.Thread(target=other)
    thread.start()
    in_command.wait()
    with gate.admit() as guest:
        with guest.window():
            assert ticking.is_frozen
            ticking.drain()
            stop.set()
            time.sleep(0.3)
            assert ticking.drain() == 0, "it ran in another's window"
            assert not left, "its judge went on in another's window"
        thread.join(10)
        wait_until(lambda: ticking.drain() > 0, 10)
    assert budget.seconds > 0.25
    assert left[0] > 25


def test_a_deadline_does_not_run_while_frozen(ticking: Ticking) -> None:
    gate = Gate(2)
    in_command = threading.Event()
    left: list[float] = []

    def other() -> None:
        with gate.admit() as guest:
            guest.sessions.append(ticking)
            in_command.set()
            left.append(guest.wait(lambda seconds: bool(time.sleep(seconds)), 0.6))

    thread = threading.Thread(target=other)
    with gate.admit() as guest:
        thread.start()
        in_command.wait()
        with guest.window():
            time.sleep(1.0)
            assert not left
    started = time.monotonic()
    thread.join(10)
    assert left == [0.0]
    assert time.monotonic() - started > 0.2, "it was late although it had been frozen"


def test_windows_exclude_each_other_and_the_busy() -> None:
    gate = Gate(4)
    lock = threading.Lock()
    in_window, busy_beside, admitted = 0, 0, 0
    most = [0, 0, 0]

    def verdict(_: int) -> None:
        nonlocal in_window, busy_beside, admitted
        with gate.admit() as guest:
            with lock:
                admitted += 1
                most[2] = max(most[2], admitted)
            for _ in range(5):
                guest.wait(lambda seconds: bool(time.sleep(0.001)) or True, 5.0)
                with lock:
                    busy_beside += 1
                    most[1] = max(most[1], in_window)
                time.sleep(0.0005)
                with lock:
                    busy_beside -= 1
                with guest.window():
                    with lock:
                        in_window += 1
                        most[0] = max(most[0], in_window)
                        most[1] = max(most[1], busy_beside)
                    time.sleep(0.001)
                    with lock:
                        in_window -= 1
            with lock:
                admitted -= 1

    with ThreadPoolExecutor(12) as threads:
        list(threads.map(verdict, range(24)))
    assert most == [1, 0, 4]


def test_a_gate_for_one_is_a_lock() -> None:
    gate = Gate()
    inside = 0

    def verdict(_: int) -> None:
        nonlocal inside
        with gate.admit() as guest, guest.window():
            inside += 1
            assert inside == 1
            time.sleep(0.001)
            inside -= 1

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(verdict, range(16)))


def test_a_verdict_that_raises_leaves_the_gate_open() -> None:
    gate = Gate(2)

    def fail(guest: Guest) -> None:
        with guest.window():
            raise RuntimeError("in a window")

    with gate.admit() as other:
        with pytest.raises(RuntimeError), gate.admit() as guest:
            other.wait(lambda _: True, 1.0)
            gate.set_busy(other, False)
            fail(guest)
        gate.set_busy(other, True)
    with gate.admit(), gate.admit():
        pass


def test_a_canary_betrays_whoever_uses_the_device() -> None:
    """The device is a core here, and the kernel a sum; its idle baseline is kept, a slow one is corrected."""
    times = iter([10.0] * 15 + [10.2, 10.1, 10.4] + [14.0, 15.0, 13.0] + [10.0, 30.0, 31.0])
    canary = Canary(lambda: next(times))
    assert canary.is_clean()
    assert not canary.is_clean()
    assert canary.is_clean(), "one clean song of three is enough: the others met an interruption"


def test_a_gate_lets_somebody_in() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Gate(0)


def test_cores_are_chosen_when_all_have_been_told_to_stop_and_none_is_waited_for_yet() -> None:
    told: list[str] = []

    class Noted(Ticking):
        def order_freeze(self) -> None:
            super().order_freeze()
            told.append("told")

        def wait_frozen(self, timeout: float = 5.0) -> None:
            super().wait_frozen(timeout)
            told.append("waited for")

    others = [Noted(), Noted()]
    frozen: list[Freezable] = []
    try:
        freeze(others, frozen, meanwhile=lambda: told.append("chosen"))
        assert frozen == others
        assert told == ["told", "told", "chosen", "waited for", "waited for"]
    finally:
        thaw(frozen)
        for other in others:
            other.close()
