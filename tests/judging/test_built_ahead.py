"""An extension is compiled before its verdict has a place at the device."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from gpu_steps import BUILT, HONEST, IN_PLACE, PROBLEM, HostBench, Windows, judge, passed, refused

from kerneldojo.judging import cuda
from kerneldojo.judging.alone import Alone
from kerneldojo.judging.gate import Gate
from kerneldojo.judging.processes import ForkServer, Session
from kerneldojo.judging.shares import Shares
from kerneldojo.judging.workshop import NUM_SIDES, Workshop
from kerneldojo.schema import Problem, Status
from kerneldojo.schema.pace import Pace

SMALL, ROOMY = Shares(1, 0, 4 << 10), Shares(1, 0, 1 << 28)
LONE = Shares(1, 0, 1 << 28, num_processes=2)
PACE = Pace(contexts_ahead=0)


def opened(server: ForkServer, alone: Sequence[Alone], pace: Pace = PACE) -> HostBench:
    """A bench in which `PROBLEM` is known to be judged alone, in the last room."""
    bench = HostBench(server, 2, 1, 4 << 10, pace, alone=alone)
    bench.large = {PROBLEM.hash: len(alone)}
    return bench


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch, asked: dict[Session, list[str]]) -> Generator[list[list[list[str]]]]:
    """For each time that a verdict came in, what its processes had been asked by then."""
    found: list[list[list[str]]] = []
    admit = Gate.admit

    def noted(self: Gate, *arguments: Any, **options: Any) -> Any:
        found.append([list(told) for told in asked.values()])
        return admit(self, *arguments, **options)

    monkeypatch.setattr(Gate, "admit", noted)
    yield found
    assert all(session.ended is not None for session in asked), "a runner so large is not kept, either"


@pytest.mark.parametrize(
    "alone",
    [(Alone(ROOMY, ROOMY),), (Alone(SMALL, SMALL), Alone(LONE, LONE))],
    ids=["a twin beside", "no twin beside"],
)
def test_it_is_built_once_before_it_comes_in(
    server: ForkServer,
    windows: Windows,
    entries: list[list[list[str]]],
    tmp_path: Path,
    alone: Sequence[Alone],
) -> None:
    bench = opened(server, alone)
    findings = passed(judge(bench, BUILT, tmp_path, IN_PLACE))
    bench.close()
    assert findings.num_built == (1, 3), "who tries it has it, too"
    (before,) = entries
    assert before == [["parse", "load"], []], "who tries it has imported it; the workshop is asked nothing by us"
    assert findings.stage_seconds["build"] > 0


def test_so_it_is_beside_others_for_whom_it_would_have_to_leave(
    server: ForkServer, windows: Windows, entries: list[list[list[str]]], tmp_path: Path
) -> None:
    """Who is to have the device alone waits until all others have left."""
    bench = HostBench(server, 2, 1, 1 << 28, PACE)
    findings = passed(judge(bench, BUILT, tmp_path, IN_PLACE))
    bench.close()
    assert findings.num_built == (1, 3)
    assert entries == [[["parse", "load"], []]]


@pytest.mark.parametrize(("part_bytes", "room"), [(4 << 10, 1), (1 << 10, 2)])
def test_it_is_built_once_where_its_problem_needs_a_larger_room(
    server: ForkServer,
    windows: Windows,
    entries: list[list[list[str]]],
    asked: dict[Session, list[str]],
    tmp_path: Path,
    part_bytes: int,
    room: int,
) -> None:
    larger = (Shares(2, 0, 8 * part_bytes), Shares(2, 0, 64 * part_bytes))
    bench = HostBench(server, 4, 1, part_bytes, PACE, larger=larger)
    findings = passed(judge(bench, BUILT, tmp_path, IN_PLACE))
    assert bench.large == {PROBLEM.hash: room}
    bench.close()
    assert len(entries) == 1 + room
    assert findings.num_built is not None
    built, given = findings.num_built
    assert built == 1
    assert 1 + NUM_SIDES < given <= 1 + NUM_SIDES * (1 + room), "a twin may not have come where there was too little"
    assert sum(told == ["count"] for told in asked.values()) == 1, "one workshop"


@pytest.mark.parametrize("broken", ["no lines left", "dead", "timed"])
def test_a_workshop_that_cannot_serve_once_more_is_followed_by_another(
    server: ForkServer, windows: Windows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    bench = opened(server, (Alone(ROOMY, ROOMY),))
    bench.large.clear()
    judge_beside = cuda._judge_beside
    first: list[Workshop] = []

    def spent(*given: Any) -> int | None:
        room = judge_beside(*given)
        workshop = given[-1].workshop
        assert workshop.is_ready
        first.append(workshop)
        if broken == "dead":
            workshop._session.kill()
        elif broken == "timed":
            workshop.stand_still()
        else:
            workshop.line().close()
            workshop.line().close()
            workshop.line().close()
        return room

    monkeypatch.setattr(cuda, "_judge_beside", spent)
    findings = passed(judge(bench, BUILT, tmp_path, IN_PLACE))
    bench.close()
    assert findings.num_built == (1, 3), "by the second, before it came in again"
    assert len(first) == 1


def test_at_each_entrance_it_stands_still_in_others_windows(
    server: ForkServer, windows: Windows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nobody's window waits for who has left, and clears up."""
    bench = opened(server, (Alone(ROOMY, ROOMY),))
    bench.large.clear()
    waiting: list[list[tuple[int, bool]]] = []
    is_next, close = Gate._is_next, Workshop.abandon

    def noted(self: Gate, ticket: Any) -> bool:
        waiting.append([(len(guest.sessions), guest.is_busy) for guest in self._outside])
        return is_next(self, ticket)

    def closed(self: Workshop) -> None:
        assert bench.gate._outside == []
        close(self)

    monkeypatch.setattr(Gate, "_is_next", noted)
    monkeypatch.setattr(Workshop, "abandon", closed)
    passed(judge(bench, BUILT, tmp_path, IN_PLACE))
    assert waiting == [[(1, False)], [(1, False)]], "the workshop's guest, before the first room and before the second"
    bench.close()


@pytest.mark.slow
def test_many_that_go_from_room_to_room_wait_for_each_other_and_not_for_ever(
    server: ForkServer, windows: Windows, asked: dict[Session, list[str]], tmp_path: Path
) -> None:
    """Some of problems that fit where they begin, some of such as do not, half of them with an extension."""
    larger = (Shares(2, 0, 1 << 15), Shares(2, 0, 1 << 18))
    bench = HostBench(server, 4, 1, 4 << 10, PACE, larger=larger)
    sizes = ["4, 256", "1, 8", "64, 256", "16, 256"]
    problems = [Problem(name=size, source=PROBLEM.source.replace("4, 256", size)) for size in sizes]
    sources = [BUILT, HONEST]
    with ThreadPoolExecutor(8) as threads:
        verdicts = [
            threads.submit(judge, bench, sources[number // 4 % 2], tmp_path, IN_PLACE, problem=problems[number % 4])
            for number in range(16)
        ]
        found = [passed(verdict.result(timeout=240)) for verdict in verdicts]
    assert [one.num_built is not None for one in found] == [number // 4 % 2 == 0 for number in range(16)]
    assert all(one.num_built[0] == 1 for one in found if one.num_built is not None)
    assert {bench.large.get(problem.hash, 0) for problem in problems} == {0, 1, 2, 3}
    assert bench.gate._outside == bench.gate._guests == []
    bench.close()
    assert all(session.ended is not None for session in asked)


@pytest.mark.parametrize("source", [BUILT, HONEST], ids=["something to build", "nothing to build"])
def test_where_it_is_not_asked_for_nothing_is_made_before(
    server: ForkServer, windows: Windows, entries: list[list[list[str]]], tmp_path: Path, source: str
) -> None:
    bench = opened(server, (Alone(ROOMY, ROOMY),), Pace(contexts_ahead=0, builds_ahead=False))
    passed(judge(bench, source, tmp_path, IN_PLACE))
    bench.close()
    assert entries == [[]]


@pytest.mark.parametrize("emulated", ["", "h100"])
def test_what_has_nothing_to_build_is_tried_once_before_it_comes_in(
    server: ForkServer, windows: Windows, entries: list[list[list[str]]], tmp_path: Path, emulated: str
) -> None:
    bench = opened(server, (Alone(SMALL, SMALL), Alone(ROOMY, ROOMY)))
    bench.large.clear()  # It comes in where there is too little, and again.
    bench.emulated = emulated
    findings = passed(judge(bench, HONEST, tmp_path, IN_PLACE))
    bench.close()
    tried = ["parse", "load", *(["dry_call"] if emulated else [])]
    assert len(entries) > 1
    assert [told.count(tried) for told in entries] == [1] * len(entries)
    assert findings.stage_seconds["build"] > 0


@pytest.mark.parametrize("broken", ["not Python", "raises"])
def test_what_does_not_import_never_has_the_device(
    server: ForkServer,
    windows: Windows,
    entries: list[list[list[str]]],
    tmp_path: Path,
    broken: str,
) -> None:
    bench = opened(server, (Alone(ROOMY, ROOMY),))
    source = f"{BUILT}\nclass :" if broken == "not Python" else f"{BUILT}\nraise ValueError('no')"
    assert refused(judge(bench, source, tmp_path, IN_PLACE)).status is Status.COMPILE_ERROR
    assert entries == []
    bench.close()


def test_a_workshop_that_dies_meanwhile_is_not_needed(
    server: ForkServer,
    windows: Windows,
    entries: list[list[list[str]]],
    asked: dict[Session, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who has a line to it builds by itself then, as ever."""
    bench = opened(server, (Alone(SMALL, SMALL), Alone(LONE, LONE)))
    new_arena = HostBench.new_arena

    def killed(self: HostBench, *arguments: Any, **options: Any) -> Any:
        workshop = list(asked)[1]
        workshop.kill()
        return new_arena(self, *arguments, **options)

    monkeypatch.setattr(HostBench, "new_arena", killed)
    findings = passed(judge(bench, BUILT, tmp_path, IN_PLACE))
    bench.close()
    assert findings.num_built is None
