"""An extension is compiled before its verdict has a place at the device."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
from gpu_steps import BUILT, HONEST, IN_PLACE, PROBLEM, HostBench, Windows, judge, passed, refused

from kerneldojo.judging.alone import Alone
from kerneldojo.judging.gate import Gate
from kerneldojo.judging.processes import ForkServer, Session
from kerneldojo.judging.shares import Shares
from kerneldojo.schema import Status
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
