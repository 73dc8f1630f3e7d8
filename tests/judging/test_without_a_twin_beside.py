"""What fits beside a contestant and a silent twin not even alone is judged without one: it comes when that is gone."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from gpu_steps import BUILT, HONEST, IN_PLACE, PROBLEM, TWIN, HostBench, Windows, judge, passed, refused

from kerneldojo.contestant.arena import HostArena, Packer
from kerneldojo.judging.alone import Alone
from kerneldojo.judging.processes import ForkServer, Session
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.shares import Shares
from kerneldojo.judging.twin import Twin
from kerneldojo.schema import Status

GIB = 1 << 30
WHOLE, LONE = Shares(1, 0, 4 << 10), Shares(1, 0, 1 << 28, num_processes=2)
NO_CAUSE = HONEST.replace("return y", "return x * torch.sigmoid(x)")
"""Its kernel runs, and its answer comes from elsewhere."""


@pytest.fixture
def bench(server: ForkServer) -> Generator[HostBench]:
    """In whose first room for one alone nothing fits."""
    rooms = (Alone(WHOLE, Shares(1, 0, 4 << 10, num_processes=1)), Alone(LONE, Shares(1, 0, 1 << 28, num_processes=1)))
    bench = HostBench(server, 2, 1, 4 << 10, alone=rooms)
    yield bench
    bench.close()


@pytest.fixture
def beside(asked: dict[Session, list[str]], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For each process of a verdict, how many others with memory were there when it was made, in the last room."""
    counts: list[int] = []
    new_arena = HostBench.new_arena

    def noted(self: HostBench, inputs: Any, shares: Shares, **options: bool) -> Any:
        if shares == LONE:
            counts.append(sum(session.ended is None and isinstance(session.arena, HostArena) for session in asked))
        return new_arena(self, inputs, shares, **options)

    monkeypatch.setattr(HostBench, "new_arena", noted)
    return counts


def test_who_is_silenced_in_place_needs_none(
    bench: HostBench,
    beside: list[int],
    windows: Windows,
    tmp_path: Path,
) -> None:
    findings = passed(judge(bench, HONEST, tmp_path, IN_PLACE))
    assert findings.oracle == "float64"
    assert bench.large == {PROBLEM.hash: 2}
    assert beside == [0, 1], "a runner, and a contestant"
    assert len(windows.drawn) == 1


def test_where_the_judge_finds_that_inputs_do_not_fit_there_is_another_room(
    bench: HostBench,
    windows: Windows,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Results may lie in a heap that is larger than what arguments have."""
    rooms: list[Shares] = []
    put = Packer.put

    def limited(self: Packer, tensor: torch.Tensor) -> Any:
        rooms.append(bench.given[-1])
        if tensor.nbytes > 1024 and bench.given[-1].part_bytes < 1 << 20:
            raise MemoryError("the shared memory is too small: 4096 bytes needed, 1024 there")
        return put(self, tensor)

    heap_bytes = property(lambda own: max(1 << 20, int(own.heap_parts * own.part_bytes)))
    for name in ("heap_bytes", "runner_heap_bytes"):
        monkeypatch.setattr(Shares, name, heap_bytes)  # All but arguments would fit.
    monkeypatch.setattr(Packer, "put", limited)
    passed(judge(bench, HONEST, tmp_path, IN_PLACE))
    assert list(dict.fromkeys(rooms)) == [bench.shares, bench.alone[1].audit, LONE], (
        "the first has no more than a share"
    )


RUNS_OUT = HONEST.replace("y = torch.empty_like(x)", "raise torch.OutOfMemoryError")


@pytest.mark.parametrize("part_bytes", [4 << 10, 1 << 28], ids=["a large problem", "any other"])
def test_who_runs_out_of_memory_alone_has_more_only_where_the_problem_needs_it(
    server: ForkServer,
    windows: Windows,
    tmp_path: Path,
    part_bytes: int,
) -> None:
    whole, lone = Shares(1, 0, 1 << 28), replace(LONE, part_bytes=1 << 29)
    bench = HostBench(server, 2, 1, part_bytes, alone=(Alone(whole, whole), Alone(lone, lone)))
    assert refused(judge(bench, RUNS_OUT, tmp_path, IN_PLACE)).status is Status.OUT_OF_MEMORY
    assert whole in bench.given, "once more without company, as anybody"
    assert (lone in bench.given) == (part_bytes < 1 << 20)
    assert bench.large == ({PROBLEM.hash: 2} if part_bytes < 1 << 20 else {}), "whoever comes next begins there"
    bench.close()


def test_a_twin_comes_when_the_contestant_has_left(
    bench: HostBench,
    beside: list[int],
    windows: Windows,
    tmp_path: Path,
) -> None:
    passed(judge(bench, HONEST, tmp_path, TWIN))
    assert beside == [0, 1, 1]
    assert windows.drawn == [], "who is to have a twin is not silenced where it was timed"


@pytest.mark.parametrize("settings", [IN_PLACE, TWIN], ids=["in place", "a twin"])
def test_whose_kernels_do_not_cause_the_answer_is_found_out(
    bench: HostBench,
    beside: list[int],
    windows: Windows,
    tmp_path: Path,
    settings: Any,
) -> None:
    ruling = refused(judge(bench, NO_CAUSE, tmp_path, settings))
    assert ruling.status is Status.EXPLOIT
    assert beside == [0, 1, 1]


def test_an_extension_is_built_once_where_they_are_not_at_the_same_time(
    bench: HostBench,
    beside: list[int],
    asked: dict[Session, list[str]],
    windows: Windows,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, freeze, thaw = windows.run, Session.freeze, Session.thaw

    def timed(*arguments: Any) -> None:
        run(*arguments)
        for told in asked.values():
            told.append("window")

    def frozen(session: Session, timeout: float = 5.0) -> None:
        asked[session].append("freeze")
        freeze(session, timeout)

    def thawed(session: Session) -> None:
        asked[session].append("thaw")
        thaw(session)

    monkeypatch.setattr(windows, "run", timed)
    monkeypatch.setattr(Session, "freeze", frozen)
    monkeypatch.setattr(Session, "thaw", thawed)
    findings = passed(judge(bench, BUILT, tmp_path, IN_PLACE))
    assert beside == [0, 1, 1]
    assert findings.num_built in [(1, 4), (1, 5)], (
        "who tried it had it, too, and one or both where there was too little"
    )
    assert ["freeze", "window", "thaw", "count"] in asked.values(), "its workshop stands still while time is taken"
    assert all(session.ended is not None for session in asked)


@pytest.mark.parametrize("end", ["a window", "the twin"])
def test_a_workshop_that_stands_still_ends_with_its_verdict(
    bench: HostBench,
    asked: dict[Session, list[str]],
    windows: Windows,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    end: str,
) -> None:
    def refuse(*_: Any) -> None:
        raise Ruling(Status.EXPLOIT, "seen")

    monkeypatch.setattr(windows, "run", refuse) if end == "a window" else monkeypatch.setattr(Twin, "arrive", refuse)
    assert refused(judge(bench, BUILT, tmp_path, IN_PLACE)).status is Status.EXPLOIT
    assert all(session.ended is not None for session in asked)


@pytest.mark.parametrize("gib", [24, 79.6, 139.8])
def test_without_a_twin_beside_larger_tensors_fit(gib: float) -> None:
    total = int(gib * GIB)
    rooms = Alone.of(total)
    whole, wide, lone, slim, sparse = (room.verdict for room in rooms)
    auditing, wide_auditing, lone_auditing, slim_auditing, sparse_auditing = (room.audit for room in rooms)
    assert whole.has_twin_beside and not wide.has_twin_beside and not lone.has_twin_beside
    for division in (division for room in rooms for division in room):
        assert division.most_bytes <= total
        assert division.in_place
    assert wide.exchange_bytes == whole.exchange_bytes and wide.inputs_bytes == whole.inputs_bytes
    assert wide.runner_heap_bytes > wide.heap_bytes > 1.3 * whole.heap_bytes
    assert wide.judge_bytes > 1.2 * whole.judge_bytes
    assert wide_auditing.runner_heap_bytes > 1.2 * wide.runner_heap_bytes, "there is nobody beside it"
    assert wide_auditing.judge_bytes == auditing.judge_bytes
    assert lone.exchange_bytes > 1.3 * whole.exchange_bytes
    assert lone.heap_bytes > lone.runner_heap_bytes > 2 * lone.exchange_bytes
    assert lone.inputs_bytes >= 2 * lone.exchange_bytes - 2
    assert lone_auditing.exchange_bytes == lone.exchange_bytes
    assert slim.exchange_bytes > 1.3 * lone.exchange_bytes
    assert slim.problem_bytes == slim.runner_heap_bytes > 2 * slim.exchange_bytes, "it draws inputs in two versions"
    assert slim_auditing.runner_heap_bytes >= slim.runner_heap_bytes
    assert not slim.has_twin_beside
    assert sparse.exchange_bytes > 1.07 * slim.exchange_bytes
    assert sparse.problem_bytes == sparse.runner_heap_bytes > 2 * sparse.exchange_bytes
    assert sparse_auditing.runner_heap_bytes >= sparse.runner_heap_bytes
    assert not sparse.has_twin_beside
    assert whole.runner_heap_bytes == whole.heap_bytes


def test_the_elementwise_problems_of_kernelbench_fit_80_gb_and_so_do_its_reductions() -> None:
    _, _, lone, slim, _ = Alone.of(81_559 << 20)
    assert lone.verdict.exchange_bytes > 4 * 4096 * 393_216
    assert slim.verdict.exchange_bytes > 4 * 128 * 4096 * 4095


def test_the_largest_convolutions_of_kernelbench_fit_an_h200() -> None:
    """Two results that are kept, one call of a candidate that copies what cuDNN makes, and what cuDNN takes for it; and
    beside two copies of the inputs, one of which is cut, the answers in two precisions."""
    whole, wide, *_ = (room.verdict for room in Alone.of(int(139.8 * GIB)))
    for input_gib, output_gib, workspace_gib in ((8, 5.34, 8), (4, 8, 0)):  # 1/76 and 1/87
        assert wide.exchange_bytes > input_gib * GIB
        assert wide.heap_bytes > (3 * output_gib + max(output_gib, workspace_gib)) * GIB > whole.heap_bytes
        assert wide.runner_heap_bytes > (2 * input_gib + 2 * output_gib + 1.3 * workspace_gib) * GIB
        assert wide.judge_bytes > (input_gib + 3 * output_gib + 4) * GIB, "the candidate's answer, and what is kept"


def test_the_largest_problem_of_kernelbench_fits_an_h200() -> None:
    """1/45 averages an input of 16 GiB."""
    *_, sparse = Alone.of(int(139.8 * GIB))
    assert sparse.verdict.exchange_bytes > 4 * 16 * 64 * 2048 * 2048
