"""Cores reserved for windows: real processes, whose threads are really moved."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Generator
from itertools import chain
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pooled import wait_until

from kerneldojo.contestant.sandbox import processes
from kerneldojo.devices.cores import all_but, cores_of_gpus, siblings_of
from kerneldojo.judging.cores import LEAST_CORES, PATIENCE_SECONDS, SHARE_OF_REST, SLOW, Cores
from kerneldojo.judging.gate import Gate
from kerneldojo.judging.host import COMPILE_ARENA_BYTES
from kerneldojo.judging.processes import ForkServer, Session, host_arena
from kerneldojo.judging.protocol import Protocol
from kerneldojo.judging.seats import reserved_for
from kerneldojo.judging.surroundings import request
from kerneldojo.judging.tries import NUM_REMEMBERED

ALL = sorted(os.sched_getaffinity(0))
BUSY = """
import sys, threading
def work():
    while True:
        sum(range(10_000))
threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    threading.Thread(target=work, daemon=True).start()
    print("another", flush=True)
"""

needs_two_cores = pytest.mark.skipif(len(ALL) < 2, reason="needs two cores")


class Busy:
    """A process with threads that work all the time; as a gate sees a session."""

    def __init__(self) -> None:
        self.ended = None
        self.process = subprocess.Popen(
            [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def pids(self) -> list[int]:
        return [self.process.pid]

    def order_freeze(self) -> None:
        self.process.send_signal(19)

    def wait_frozen(self, timeout: float = 5.0) -> None: ...

    def thaw(self) -> None:
        self.process.send_signal(18)

    def start_thread(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "another\n"

    def masks(self) -> list[set[int]]:
        """Where each of its threads may run."""
        return masks(self.process.pid)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def masks(pid: int) -> list[set[int]]:
    return [os.sched_getaffinity(int(thread)) for thread in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208


@pytest.fixture
def busy() -> Generator[Busy]:
    process = Busy()
    yield process
    process.close()


@needs_two_cores
def test_in_a_window_the_timed_have_cores_that_nobody_else_of_ours_uses(busy: Busy) -> None:
    reserved, rest = {ALL[0]}, set(ALL[1:])
    gate, stop = Gate(2, Cores(reserved, rest)), threading.Event()
    bystander = threading.Thread(target=stop.wait)
    bystander.start()
    beside = Busy()
    os.sched_setaffinity(busy.process.pid, {ALL[1]})
    try:
        with gate.admit() as guest:
            guest.sessions.append(busy)
            with guest.window():
                busy.start_thread()
                assert busy.masks() == [reserved] * 3
                assert os.sched_getaffinity(0) == reserved, "the thread that reads the clock"
                assert bystander.native_id is not None
                assert os.sched_getaffinity(bystander.native_id) == rest
                assert beside.masks() == [rest] * 2, "what hangs below us and is not timed"
            assert sorted(map(sorted, busy.masks())) == sorted([[ALL[1]], ALL, ALL]), "each as before"
            assert os.sched_getaffinity(0) == os.sched_getaffinity(bystander.native_id) == set(ALL)
            assert beside.masks() == [set(ALL)] * 2
    finally:
        stop.set()
        bystander.join()
        beside.close()


@needs_two_cores
def test_a_window_that_fails_gives_the_cores_back(busy: Busy) -> None:
    gate = Gate(2, Cores(ALL[:1], ALL[1:]))
    with gate.admit() as guest:
        guest.sessions.append(busy)
        with contextlib.suppress(RuntimeError), guest.window():
            busy.close()  # Whatever was timed may end meanwhile.
            raise RuntimeError("in a window")
    assert os.sched_getaffinity(0) == set(ALL)


@needs_two_cores
def test_one_verdict_at_a_time_has_its_cores_too(busy: Busy) -> None:
    """Even so, fork servers, keepers and the other threads of a core would be beside what is timed."""
    gate = Gate(1, Cores(ALL[:1], ALL[1:]))
    with gate.admit() as guest:
        guest.sessions.append(busy)
        with guest.window():
            assert busy.masks() == [{ALL[0]}] * 2
            assert os.sched_getaffinity(0) == {ALL[0]}
        assert busy.masks() == [set(ALL)] * 2
        assert os.sched_getaffinity(0) == set(ALL)


@needs_two_cores
def test_a_hosted_process_is_moved_as_a_whole_and_its_keeper_is_not() -> None:
    server = ForkServer("compile")
    reserved, rest = {ALL[0]}, set(ALL[1:])
    try:
        with Session(server, host_arena(COMPILE_ARENA_BYTES), request(Protocol(), "h100")) as session:
            assert session.pids() == [], "nothing is hosted yet"
            session.wait_started()
            hosted = session.pids()
            assert hosted
            (fork_server,) = [pid for pid in processes.children(os.getpid()) if set(hosted) <= below(pid)]
            keeper = session._keeper  # The hosted process is below it, or beside it: a guest of the fork server's.
            assert keeper in below(fork_server)
            assert keeper not in hosted
            with reserved_for(Cores(reserved, rest), [session.pids()]):
                assert all(mask == reserved for mask in chain(*map(masks, hosted)))
                assert masks(keeper) == [rest]
                assert all(mask == rest for mask in masks(fork_server))
            assert all(mask == set(ALL) for pid in (*hosted, keeper, fork_server) for mask in masks(pid))
            session.kill()
            assert session.pids() == []
    finally:
        server.close()
    wait_until(lambda: not any(processes.is_alive(pid) for pid in hosted), 30)


def below(pid: int) -> set[int]:
    return set(processes.descendants(pid))


@pytest.mark.parametrize(("reserved", "rest"), [([], [1]), ([1], []), ([1, 2], [2, 3])])
def test_cores_that_cannot_be_kept_apart_are_refused(reserved: list[int], rest: list[int]) -> None:
    with pytest.raises(ValueError, match="share nothing"):
        Cores(reserved, rest)


@given(st.sets(st.integers(0, 255), max_size=64))
def test_cores_are_reserved_only_where_there_are_many(cores: set[int]) -> None:
    kept = Cores.of(cores, lambda core: {core})
    assert (kept is None) == (len(cores) < LEAST_CORES)
    if kept is not None:
        assert kept.eligible | kept.rest == cores
        assert len(kept.rest) >= SHARE_OF_REST * len(cores)


@pytest.mark.parametrize("distance", [1, 32])
@given(num=st.integers(8, 64))
def test_whole_cores_are_divided(distance: int, num: int) -> None:
    """Threads of a core are numbered next to each other on some machines, and half of all apart on others."""

    def siblings(thread: int) -> set[int]:
        return {thread, thread ^ 1} if distance == 1 else {thread, (thread + 32) % 64}

    kept = Cores.of(range(num), siblings)
    assert kept is not None
    assert kept.eligible | kept.rest == set(range(num))
    assert all(siblings(core) & set(range(num)) <= kept.eligible for core in kept.eligible)


def test_where_nothing_is_told_of_siblings_neighbours_are_taken_for_them() -> None:
    kept = Cores.of(range(16), lambda core: {core})
    assert kept is not None
    assert kept.rest == {10, 11, 12, 13, 14, 15}
    assert all(kept.together[core] == {core, core ^ 1} for core in range(16))


@given(times=st.dictionaries(st.integers(0, 15), st.floats(1, 100), min_size=1), num=st.integers(1, 6))
def test_the_quickest_are_chosen_no_two_of_one_core(times: dict[int, float], num: int) -> None:
    kept = Cores.of(range(16), lambda core: {core})
    assert kept is not None
    chosen = kept.choose(times, num)
    assert len(chosen) == len(set(chosen)) == min(num, len(times))
    assert chosen[0] == min(times, key=lambda core: times[core])
    groups = {frozenset({core, core ^ 1}) for core in times}
    assert len({frozenset({core, core ^ 1}) for core in chosen}) == min(num, len(groups))


@needs_two_cores
def test_what_is_timed_leaves_a_core_that_has_become_slow(busy: Busy) -> None:
    slow: set[int] = set()

    def probe() -> float:
        (core,) = os.sched_getaffinity(0)
        return 2 * SLOW if core in slow else 1.0

    cores = Cores(ALL, [10**6], probe=probe)
    cores.rest = frozenset(ALL)
    with reserved_for(cores, []) as reserved:  # This thread alone, so that another core is free.
        first = reserved.mine
        reserved.renew()
        assert reserved.mine == first, "it is as quick as before"
        slow.add(first)
        reserved.renew()
        assert reserved.mine != first
        assert os.sched_getaffinity(0) == {reserved.mine}
        slow.update(ALL)
        reserved.renew()
        assert os.sched_getaffinity(0) == {reserved.mine}, "nothing better is to be had"
    with reserved_for(cores, [[busy.process.pid]]) as reserved:
        assert sorted(reserved.places) == ALL[:2]
        assert busy.masks() == [{reserved.places[0]}] * 2
        assert os.sched_getaffinity(0) == {reserved.mine} == {reserved.places[1]}
    assert busy.masks() == [set(ALL)] * 2
    assert os.sched_getaffinity(0) == set(ALL)


@needs_two_cores
def test_a_host_all_of_whose_cores_are_slow_is_told_from_its_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kerneldojo.judging.cores.PATIENCE_SECONDS", 0.0)
    taken = 4.0
    cores = Cores(ALL, [10**6], probe=lambda: taken)
    cores.rest = frozenset(ALL)
    gate = Gate(1, cores=cores)

    def slowness(*rounds: float) -> float:
        nonlocal taken
        with gate.admit() as guest:
            with guest.window():
                for now in rounds:
                    taken = now
                    guest.renew_cores()
                within = guest.slowness
            assert guest.slowness == within, "it is told while the window is open, and remembered"
            return within

    assert slowness(4.0, 4.0) == 1
    assert slowness(6.0, 8.0, 8.0, 8.0) == 2, "half of its rounds and more"
    assert slowness(8.0, 4.0, 4.0, 4.0) == 1
    taken = 10.0
    assert slowness(9.0, 9.0, 9.0) == 2.25, "what is slow for long is no less slow for it"


@needs_two_cores
@pytest.mark.parametrize(("num_slow", "num_rounds"), [(0, 1), (3, 4), (10**9, 6)])
def test_a_window_waits_a_little_for_quick_cores(
    monkeypatch: pytest.MonkeyPatch, num_slow: int, num_rounds: int
) -> None:
    """By a clock that only probing moves, so that nothing depends on how busy this machine is."""
    num_probed = 0

    def probe() -> float:
        nonlocal num_probed
        num_probed += 1
        return 2 * SLOW if num_probed <= num_slow * len(ALL) else 1.0

    cores = Cores(ALL, [10**6], probe=probe)
    cores.rest = frozenset(ALL)
    cores.quickest.append(1.0)
    monkeypatch.setattr("kerneldojo.judging.seats.time", SimpleNamespace(monotonic=lambda: float(num_probed)))
    monkeypatch.setattr("kerneldojo.judging.cores.PATIENCE_SECONDS", 5.5 * len(ALL))
    with reserved_for(cores, []) as reserved:
        assert reserved.mine in ALL
        assert num_probed == num_rounds * len(ALL)
    assert os.sched_getaffinity(0) == set(ALL)


@needs_two_cores
def test_where_waiting_for_quick_cores_is_in_vain_it_is_hardly_tried(
    busy: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One core is quick, and two are needed."""
    now, slow = 0.0, set(ALL[1:])

    def probe() -> float:
        nonlocal now
        now += 0.001 / len(ALL)
        (core,) = os.sched_getaffinity(0)
        return 2 * SLOW if core in slow else 1.0

    def settled() -> float:
        began = now
        with reserved_for(cores, [[busy.process.pid]]):
            return now - began

    cores = Cores(ALL, [10**6], probe=probe)
    cores.rest = frozenset(ALL)
    monkeypatch.setattr("kerneldojo.judging.seats.time", SimpleNamespace(monotonic=lambda: now))
    waits = [settled() for _ in range(10)]
    assert waits[0] > PATIENCE_SECONDS
    assert waits[-1] < PATIENCE_SECONDS / NUM_REMEMBERED + 0.002
    slow.clear()
    assert settled() < 0.002, "enough at once: there is nothing to wait for"
    assert cores.patience_seconds < PATIENCE_SECONDS / NUM_REMEMBERED
    for _ in range(NUM_REMEMBERED):
        cores.waits.remember(was_worth_it=True)
    assert cores.patience_seconds == PATIENCE_SECONDS


def test_the_system_tells_of_siblings_and_what_it_does_not_know_is_alone() -> None:
    assert ALL[0] in siblings_of(ALL[0])
    assert siblings_of(10**6) == {10**6}


@given(st.integers(0, 40), st.sets(st.integers(0, 63), max_size=64), st.sampled_from([1, 32]))
def test_cores_that_are_left_to_others_share_nothing_with_the_rest(num: int, cores: set[int], distance: int) -> None:
    def siblings(thread: int) -> set[int]:
        return {thread, thread ^ 1} if distance == 1 else {thread, (thread + 32) % 64}

    kept = all_but(num, cores, siblings)
    left = cores - set(kept)
    assert set(kept) <= cores and list(kept) == sorted(kept)
    assert min(num, len(cores)) <= len(left) <= num + 1
    assert all(siblings(core) & cores <= left for core in left)
    assert all_but(3, range(8), lambda core: {core}) == (4, 5, 6, 7), "where nothing is told, neighbours are one"


@given(st.integers(1, 16), st.sets(st.integers(0, 255), max_size=128))
def test_every_gpu_gets_cores_of_its_own(num_gpus: int, cores: set[int]) -> None:
    shares = cores_of_gpus(num_gpus, sorted(cores))
    assert sorted(chain(*shares)) == sorted(cores)
    sizes = [len(share) for share in shares]
    assert len(sizes) == num_gpus
    assert max(sizes) - min(sizes) <= 1
