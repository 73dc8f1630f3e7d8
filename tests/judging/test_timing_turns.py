"""Memory for timing: who has it, in which order, and for how long."""

from __future__ import annotations

import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from gpu_steps import HONEST, PROBLEM, AlwaysClean, HostBench, Windows, judge, passed, refused

from kerneldojo import Problem
from kerneldojo.contestant.arena import HostArena
from kerneldojo.devices.cuda.driver import CudaError
from kerneldojo.judging.alone import whole
from kerneldojo.judging.division import divide, larger
from kerneldojo.judging.ends import Infrastructure
from kerneldojo.judging.processes import ForkServer, Session
from kerneldojo.judging.reference import Reference
from kerneldojo.judging.turns import Turns
from kerneldojo.schema import Status
from kerneldojo.schema.pace import Pace

MAPS = "\nfrom kerneldojo.contestant.host_platform import HostPlatform\nHostPlatform.do_extend = lambda self, *_: {}\n"
"""A device that has memory to be added."""
PROBLEM_THAT_MAPS = Problem(name="swish", source=PROBLEM.source + MAPS)
GIB = 1 << 30


class StagedBench(HostBench):
    """One verdict at a time has memory for timing."""

    def __init__(self, server: ForkServer) -> None:
        super().__init__(server, 3, 3, pace=Pace(contexts_ahead=2))
        self.timed = Turns(1)
        self._canary = AlwaysClean()  # type: ignore[assignment]
        self.extended: list[bool] = []
        """For each time, whether it was with inputs of its own."""

    def extend(self, arena: Any, inputs: Any) -> tuple[list[int], list[int]]:
        self.extended.append(inputs is None)
        return [], []


@pytest.fixture
def bench(server: ForkServer) -> Generator[StagedBench]:
    bench = StagedBench(server)
    yield bench
    bench.close()


def test_it_is_given_when_rounds_are_passed_and_to_all_three(
    bench: StagedBench, asked: dict[Session, list[str]], tmp_path: Path
) -> None:
    passed(judge(bench, HONEST + MAPS, tmp_path, problem=PROBLEM_THAT_MAPS))
    assert len(bench.extended) == 3
    told = [said for said in asked.values() if "platform" in said]
    assert len(told) == 3
    contestant = next(said for said in told if said.count("call") > 2)
    assert contestant.index("platform") > contestant.index("call")


@pytest.mark.parametrize("told", [True, False, None, "yes"])
def test_whose_calls_did_not_fit_before_has_more_of_it_for_them(
    bench: StagedBench, windows: Windows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: Any
) -> None:
    halved: list[HostArena] = []
    monkeypatch.setattr(HostArena, "leave_half", lambda arena: halved.append(arena), raising=False)
    says = MAPS.replace("{}", f"{{'has_overflowed': {told!r}}}")
    passed(judge(bench, HONEST + says, tmp_path, problem=Problem(name="swish", source=PROBLEM.source + says)))
    assert len(halved) == (3 if told is True else 0), "runner, contestant and twin"


def test_nobody_else_has_it_meanwhile(
    bench: StagedBench, windows: Windows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is held until the processes that had it are gone, whatever came of the verdict."""
    lock, holders, most = threading.Lock(), set[int](), 0
    extend = Reference.extend

    def noted(reference: Reference, *arguments: Any) -> None:
        nonlocal most
        with lock:
            holders.add(threading.get_ident())
            most = max(most, len(holders))
        extend(reference, *arguments)

    class Noted(Turns):
        def end(self, turn: Any) -> None:
            with lock:
                holders.discard(threading.get_ident())
            super().end(turn)

    monkeypatch.setattr(Reference, "extend", noted)
    bench.timed = Noted(1)
    late = (HONEST + MAPS).replace("return y", "return y.clone() if x.numel() else y")
    sources = [*(f"{HONEST}{MAPS}# {number}\n" for number in range(4)), late]
    with ThreadPoolExecutor(5) as threads:
        list(threads.map(lambda source: judge(bench, source, tmp_path, problem=PROBLEM_THAT_MAPS), sources))
    assert (most, len(holders)) == (1, 0)
    assert not bench.timed._line


def test_whoever_breaks_as_it_gets_it_answers_for_that(bench: StagedBench, windows: Windows, tmp_path: Path) -> None:
    breaks = MAPS.replace("{}", "1 / 0")
    ruling = refused(judge(bench, HONEST + breaks, tmp_path, problem=PROBLEM_THAT_MAPS))
    assert ruling.status is Status.RUNTIME_ERROR
    assert bench.timed is not None
    assert not bench.timed._line


def test_a_turn_that_never_comes_is_our_fault(
    bench: StagedBench, windows: Windows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kerneldojo.judging.bench_memory.TURN_SECONDS", 0.1)
    assert bench.timed is not None
    ahead = bench.timed.ask()
    with pytest.raises(Infrastructure, match="no memory to be timed in"):
        judge(bench, HONEST + MAPS, tmp_path, problem=PROBLEM_THAT_MAPS)
    ahead.give_back()
    passed(judge(bench, HONEST + MAPS, tmp_path, problem=PROBLEM_THAT_MAPS))


def test_it_is_first_come_first_served() -> None:
    turns = Turns(2)
    first, second, third, fourth = (turns.ask() for _ in range(4))
    assert [turn.wait(0.0) for turn in (first, second, third, fourth)] == [True, True, False, False]
    third.give_back()  # It does without.
    third.give_back()
    assert not fourth.wait(0.0)
    first.give_back()
    assert fourth.wait(0.0)


@pytest.mark.parametrize(("gib", "capacity"), [*((80, n) for n in (3, 4, 6, 7)), *((141, n) for n in (3, 4, 6, 8, 10))])
def test_all_of_it_fits_and_makes_room_for_more_calls(gib: int, capacity: int) -> None:
    shares = divide(capacity, gib * GIB, 6)
    assert shares.capacity == capacity
    assert shares.most_bytes <= gib * GIB
    assert 2 <= shares.num_timed < capacity
    assert shares.num_timed >= capacity // 2, "or everybody waits for a turn"
    assert shares.inputs_bytes > 2 * shares.part_bytes
    assert shares.timed_heap_bytes > shares.heap_bytes


@pytest.mark.parametrize("gib", [16, 24, 40])
def test_a_small_device_has_room_for_verdicts_before_it_has_for_what_makes_them_quick(gib: int) -> None:
    shares = divide(4, gib * GIB, 6)
    assert shares.most_bytes <= gib * GIB
    assert shares.capacity == {16: 2, 24: 4, 40: 4}[gib]
    assert shares.num_ahead >= 2
    assert shares.num_timed == 0, "its parts would be too small for problems of ordinary size"
    assert shares.part_bytes >= 256 << 20


@pytest.mark.parametrize(
    ("gib", "asked", "capacity"), [(79.1, 8, 6), (93.1, 8, 7), (79.1, 6, 6), (139.8, 12, 12), (47.4, 4, 3)]
)
def test_no_more_are_let_in_than_can_have_memory_for_timing_late(gib: float, asked: int, capacity: int) -> None:
    """Else windows hold so few calls that everybody waits longer for figures that say less."""
    shares = divide(asked, int(gib * GIB), 6)
    assert shares.capacity == capacity
    assert 2 <= shares.num_timed < capacity
    assert shares.inputs_bytes >= 20 * (64 << 20), "windows of twenty calls of 64 MB"


@pytest.mark.parametrize("gib", [80, 141])
@pytest.mark.parametrize("capacity", [3, 4, 6, 8])
def test_problems_of_ordinary_size_have_room_in_a_share(gib: int, capacity: int) -> None:
    shares = divide(capacity, gib * GIB, 6)
    assert shares.exchange_bytes >= 7 * (64 << 20), "what an audit or a round places for tensors of 64 MiB"
    assert shares.heap_bytes >= 0.8 * GIB, "a product of two, in double precision"
    assert shares.num_kept >= capacity or capacity in (3, 8)


@pytest.mark.parametrize("gib", [24, 80, 141])
@pytest.mark.parametrize("capacity", range(1, 13))
def test_larger_shares_fit_and_are_for_larger_problems_each(gib: int, capacity: int) -> None:
    usual, alone = divide(capacity, gib * GIB, 6), whole(gib * GIB)
    rooms = larger(usual.capacity, gib * GIB)
    assert [one.capacity for one in rooms] == [num for num in (usual.capacity // 2, usual.capacity // 4) if num >= 2]
    assert all(one.most_bytes <= gib * GIB for one in rooms)
    sizes = [one.part_bytes for one in (usual, *rooms, alone)]
    assert all(2 * less <= more for less, more in pairwise(sizes[1:-1]))
    assert sizes == sorted(sizes)


def test_who_is_judged_alone_has_it_from_the_beginning() -> None:
    assert whole(80 * GIB).num_timed == divide(1, 80 * GIB, 6).num_timed == 0


class FurnishingBench(StagedBench):
    """Whose blanks have memory before they are taken, if there is any."""

    is_full = False

    def __init__(self, server: ForkServer) -> None:
        super().__init__(server)
        self.given_ahead: list[Any] = []
        self.silent: list[bool] = []
        """For each that was given ahead and handed out."""
        assert self.blanks is not None
        self.blanks._furnish = self._furnish_ahead

    def arena_ahead(self) -> Any:
        if self.is_full:
            raise CudaError("cuMemCreate", "CUDA_ERROR_OUT_OF_MEMORY")
        self.given_ahead.append(HostArena.create(1 << 30))
        return self.given_ahead[-1]

    def hand_out(self, arena: Any, *, silent: bool) -> None:
        assert arena in self.given_ahead
        self.silent.append(silent)


def test_what_was_given_ahead_is_said_to_be_a_contestants_or_a_twins(
    server: ForkServer, asked: dict[Session, list[str]], windows: Windows, tmp_path: Path
) -> None:
    bench = FurnishingBench(server)
    try:
        passed(judge(bench, HONEST + MAPS, tmp_path, problem=PROBLEM_THAT_MAPS))
        assert bench.silent == [False, True]
        assert len(bench.given) == 1, "the runner's alone is made for this verdict"
    finally:
        bench.close()


def test_where_there_is_no_memory_ahead_it_comes_when_a_blank_is_taken(
    server: ForkServer, asked: dict[Session, list[str]], windows: Windows, tmp_path: Path
) -> None:
    bench = FurnishingBench(server)
    bench.is_full = True
    try:
        passed(judge(bench, HONEST + MAPS, tmp_path, problem=PROBLEM_THAT_MAPS))
        assert bench.silent == []
        assert len(bench.given) == 3
    finally:
        bench.close()
