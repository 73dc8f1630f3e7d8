"""Who keeps a device from becoming idle: somebody else, the candidate itself, or nobody (its clock fell)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from itertools import chain, repeat
from typing import Any

import pytest

from kerneldojo.judging import canary as canaries
from kerneldojo.judging import idleness, neighbours
from kerneldojo.judging.canary import NUM_CANARIES, Canary
from kerneldojo.judging.division import divide
from kerneldojo.judging.ends import Infrastructure
from kerneldojo.judging.gated_bench import Bench
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.host import COMPILE_ARENA_BYTES
from kerneldojo.judging.idleness import NUM_WINDOWS
from kerneldojo.judging.processes import ForkServer, Session, host_arena
from kerneldojo.judging.protocol import Protocol
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.shares import Shares
from kerneldojo.judging.surroundings import request
from kerneldojo.judging.verdict import Findings
from kerneldojo.schema import Candidate, Problem, Status

GIB = 1 << 30
SONGS_AFTER = 2 * NUM_CANARIES
"""What a busy device hears after a window: once more than a clean one, if it is given no time."""


class CoreBench(Bench):
    """A bench whose device is said to be busy by a function; its processes are real."""

    def __init__(self, server: ForkServer, is_busy: Callable[[], bool]) -> None:
        super().__init__(server, divide(2, 64 * GIB), "cpu")
        self._canary = Canary(lambda: 20.0 if is_busy() else 10.0)
        self._canary.baseline = 10.0

    def new_arena(self, inputs: Any, shares: Shares, *, silent: bool = False, is_runners: bool = False) -> Any:
        raise AssertionError("nothing is mapped here")

    def extend(self, arena: Any, inputs: Any) -> tuple[list[int], list[int]]:
        raise AssertionError("nothing is mapped here")

    def device_nodes(self) -> list[str]:
        return []


@pytest.fixture
def benches(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> Generator[Callable[[Callable[[], bool]], CoreBench]]:
    monkeypatch.setattr(idleness, "SETTLE_SECONDS", 0.05)
    monkeypatch.setattr(canaries, "LEFT_SECONDS", 0.0)
    monkeypatch.setattr(neighbours, "PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(neighbours, "LOOK_SECONDS", 0.0)
    made: list[CoreBench] = []

    def make(is_busy: Callable[[], bool]) -> CoreBench:
        made.append(CoreBench(server, is_busy))
        return made[-1]

    yield make
    for bench in made:
        bench.runners.close()


def findings() -> Findings:
    return Findings(Problem(name="x", source="x = 1"), Candidate(source="y = 2", language="triton"), Protocol(), "cpu")


def with_session(bench: CoreBench) -> Session:
    return Session(bench.server, host_arena(COMPILE_ARENA_BYTES), request(Protocol(), "h100"))


def accompanied(bench: CoreBench, guest: Guest) -> None:
    """Somebody else is judged beside it for a moment."""

    def come() -> None:
        with bench.gate.admit():
            pass

    thread = threading.Thread(target=come)
    thread.start()
    thread.join()
    assert guest.had_company


def test_who_keeps_the_device_busy_answers_for_it(benches: Any) -> None:
    bench: CoreBench = benches(lambda: session.ended is None)
    with with_session(bench) as session, bench.gate.admit() as guest, pytest.raises(Ruling) as caught:
        bench.measure_alone(guest, findings(), lambda: None, [session])
    assert caught.value.status is Status.RUNTIME_ERROR
    assert "never idle" in caught.value.message


def test_what_another_leaves_running_is_not_laid_at_its_door(benches: Any) -> None:
    bench: CoreBench = benches(lambda: session.ended is None)
    with with_session(bench) as session, bench.gate.admit() as guest:
        accompanied(bench, guest)
        with pytest.raises(Infrastructure, match="was not idle in 3 windows"):
            bench.measure_alone(guest, findings(), lambda: None, [session])
        assert session.ended is None, "the innocent is not ended"


class Neighbour:
    """Another verdict, in its own thread, in a command that is answered when it may finish, or never in its time."""

    def __init__(self, bench: CoreBench, *, measures: bool = False, seconds: float = 60.0) -> None:
        self._bench, self._measures, self._seconds = bench, measures, seconds
        self.is_inside, self._may_finish, self.is_over = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with self._bench.gate.admit() as guest:
            guest.is_measuring = self._measures
            self.is_inside.set()
            guest.wait(self._may_finish.wait, self._seconds)
            self.is_over.set()

    def __enter__(self) -> Neighbour:
        self._thread.start()
        self.is_inside.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()
        self._thread.join()

    def finish(self) -> None:
        self._may_finish.set()


def test_a_neighbour_at_work_is_waited_for_until_its_time_is_up_and_no_window_counts(benches: Any) -> None:
    """An endless kernel beside an honest verdict, which measures when the other's time is up: nothing is a fault."""
    bench: CoreBench = benches(lambda: not neighbour.is_over.is_set())
    num_measured = 0

    def measure() -> None:
        nonlocal num_measured
        num_measured += 1

    with Neighbour(bench, seconds=0.5) as neighbour, bench.gate.admit() as guest:
        bench.measure_alone(guest, findings(), measure, [])
        assert neighbour.is_over.is_set(), "its time passed although others wanted windows all along"
        assert not guest.is_measuring
    assert num_measured == 1


def test_two_who_want_to_measure_do_not_wait_for_each_other(benches: Any) -> None:
    bench: CoreBench = benches(lambda: True)
    with Neighbour(bench, measures=True), bench.gate.admit() as guest:
        assert guest.had_company
        with pytest.raises(Infrastructure, match="was not idle in 3 windows"):
            bench.measure_alone(guest, findings(), lambda: pytest.fail("it was never idle"), [])


def test_a_stranger_beside_a_neighbour_at_work_is_waited_for_no_longer_than_said(
    benches: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "MOST_SECONDS", 0.3)
    bench: CoreBench = benches(lambda: True)
    with Neighbour(bench), bench.gate.admit() as guest:
        with pytest.raises(Infrastructure, match="was not idle in 3 windows"):
            bench.measure_alone(guest, findings(), lambda: pytest.fail("it was never idle"), [])
        assert not guest.is_measuring
    assert bench._canary is not None
    assert not bench._canary.attendant.locked()


def test_who_comes_while_somebody_waits_is_not_waited_for(benches: Any) -> None:
    """Else a stranger would be waited for as long as there is work."""
    bench: CoreBench = benches(lambda: True)
    with Neighbour(bench) as first, bench.gate.admit() as guest:
        mine = neighbours.Neighbours(bench._canary, guest, findings())
        first.finish()
        while guest.neighbours_at_work():
            threading.Event().wait(0.01)
        assert not mine.leave_it_idle()
        with Neighbour(bench):
            assert not mine.leave_it_idle()


def test_who_makes_it_busy_in_every_window_answers_for_it_beside_others_too(benches: Any) -> None:
    num_windows, songs_until_idle = 0, 0

    def is_busy() -> bool:
        """What it launched at the end of a window runs out before the next one, but for that of the last window."""
        nonlocal songs_until_idle
        songs_until_idle -= num_windows < NUM_WINDOWS
        return session.ended is None and songs_until_idle > 0

    def act() -> None:
        nonlocal num_windows, songs_until_idle
        num_windows += 1
        songs_until_idle = SONGS_AFTER + 2

    bench: CoreBench = benches(is_busy)
    with with_session(bench) as session, bench.gate.admit() as guest:
        accompanied(bench, guest)
        with pytest.raises(Ruling, match="never idle"):
            bench.measure_alone(guest, findings(), act, [session])
    assert num_windows == NUM_WINDOWS


@pytest.mark.parametrize("is_stranger_there", [False, True])
def test_who_leaves_work_behind_each_time_answers_for_it_unless_others_come_and_go(
    benches: Any, is_stranger_there: bool
) -> None:
    num_songs_busy = 0

    def is_busy() -> bool:
        nonlocal num_songs_busy
        num_songs_busy -= 1
        if is_stranger_there and num_songs_busy < -2 * NUM_CANARIES:
            num_songs_busy = SONGS_AFTER + 1
        return num_songs_busy > 0

    def act() -> None:
        nonlocal num_songs_busy
        num_songs_busy = SONGS_AFTER + 1

    bench: CoreBench = benches(is_busy)
    with with_session(bench) as session, bench.gate.admit() as guest:
        with pytest.raises((Infrastructure, Ruling)) as caught:
            bench.measure_alone(guest, findings(), act, [session])
        assert isinstance(caught.value, Infrastructure) == is_stranger_there
        assert session.ended is None, "it need not be ended to know"


@pytest.mark.parametrize("is_before", [True, False])
def test_the_dead_answer_for_nothing(benches: Any, is_before: bool) -> None:
    """As where a reference is timed alone: whoever makes the device busy then is no candidate."""
    num_looks, num_songs_busy = 0, 0

    def is_busy() -> bool:
        nonlocal num_songs_busy
        num_songs_busy -= 1
        return num_songs_busy > 0

    def becomes_clean(_: float) -> bool:
        nonlocal num_looks
        num_looks += 1
        return num_looks > NUM_WINDOWS + 1

    def act() -> None:
        nonlocal num_songs_busy
        num_songs_busy = SONGS_AFTER + 1

    bench: CoreBench = benches(is_busy)
    if is_before:
        assert bench._canary is not None
        bench._canary.becomes_clean = becomes_clean  # type: ignore[method-assign]
    with bench.gate.admit() as guest, pytest.raises(Infrastructure, match="was not idle in 3 windows"):
        bench.measure_alone(guest, findings(), act, [])


def test_a_stranger_is_nobodys_fault(benches: Any) -> None:
    bench: CoreBench = benches(lambda: True)
    with with_session(bench) as session, bench.gate.admit() as guest, pytest.raises(Infrastructure):
        bench.measure_alone(guest, findings(), lambda: None, [session])


def test_a_clock_that_fell_is_given_time_to_rise_and_a_stranger_is_not() -> None:
    clock = iter([1980.0, 600.0, 1980.0])
    songs = chain([10.0] * 15, [16.0] * 6, [10.0] * 3, repeat(16.0))
    canary = Canary(lambda: next(songs), lambda: next(clock))
    canary.learn()
    assert canary.was_clean(60.0), "slow, at a low clock, and right once that is back"
    assert not canary.was_clean(60.0), "slow at the usual clock: somebody was there"


def test_a_core_that_became_slow_in_every_window_is_nobodys_fault() -> None:
    """What a busy host did to an honest kernel: slow after each of three windows, and quick whenever nothing ran."""
    is_slow = False

    def renew() -> None:
        nonlocal is_slow
        is_slow = False

    canary = Canary(lambda: 13.0 if is_slow else 10.0)
    canary.learn()
    for _ in range(NUM_WINDOWS):
        is_slow = True
        assert canary.was_clean(0.0, renew)
    passing = chain([12.5] * (5 * NUM_CANARIES), repeat(10.0))
    canary = Canary(lambda: next(passing))
    canary.baseline = 10.0
    assert canary.was_clean(0.0), "it passes within milliseconds"
