"""What is known of a problem is not found out again: that it was refused, and where it cannot fit."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gpu_steps import HONEST, IN_PLACE, PROBLEM, TWIN, HostBench, Windows, judge, passed, refused

from kerneldojo import Problem
from kerneldojo.contestant.arena import Packer
from kerneldojo.judging import audits
from kerneldojo.judging.alone import Alone
from kerneldojo.judging.audits import JUDGES_SIDE, Auditor
from kerneldojo.judging.bench_memory import BenchMemory
from kerneldojo.judging.processes import ForkServer, Session
from kerneldojo.judging.shares import Shares
from kerneldojo.schema import Status

DEGENERATE = Problem(
    name="identity",
    source=PROBLEM.source.replace("x * torch.sigmoid(x)", "torch.relu(x)").replace("torch.randn", "torch.rand"),
)
COPY = HONEST.replace("x * tl.sigmoid(x)", "tl.maximum(x, 0.0)")


@pytest.fixture
def bench(server: ForkServer) -> Generator[HostBench]:
    bench = HostBench(server, 2, 0)
    yield bench
    bench.close()


@pytest.mark.parametrize("is_large", [False, True])
def test_its_candidates_cost_nothing_once_that_is_known(
    bench: HostBench,
    asked: dict[Session, list[str]],
    windows: Windows,
    tmp_path: Path,
    is_large: bool,
) -> None:
    if is_large:
        bench.large[DEGENERATE.hash] = 1
    first = refused(judge(bench, COPY, tmp_path, IN_PLACE, DEGENERATE))
    assert first.status is Status.INVALID_PROBLEM
    assert len(asked) > 0
    asked.clear()
    again = refused(judge(bench, COPY, tmp_path, IN_PLACE, DEGENERATE))
    assert (again.status, again.message) == (first.status, first.message)
    assert not asked
    passed(judge(bench, COPY, tmp_path, replace(IN_PLACE, allow_degenerate=True), DEGENERATE))
    passed(judge(bench, HONEST, tmp_path, IN_PLACE))


MIB = 1 << 20
ROOMS = (
    *(Shares(8 // num, 0, size * MIB) for num, size in ((1, 1), (2, 4), (4, 16))),
    *(Shares(1, 0, size * MIB, heap_parts=parts, in_place=True) for size, parts in ((64, 3.0), (96, 3.0), (128, 0.6))),
)


@pytest.mark.parametrize(
    ("at", "needed_mib", "following"),
    [
        (0, 3, 1),
        (0, 4, 1),
        (0, 5, 2),
        (0, 17, 3),
        (0, 65, 3),
        (1, 5, 2),
        (1, 90, 3),
        (2, 90, 3),
        (3, 90, 4),
        (3, 97, 5),
        (3, 999, None),
        (4, 97, 5),
        (4, 128, 5),
        (4, 999, None),
        (5, 999, None),
    ],
)
def test_a_room_that_is_too_small_for_what_did_not_fit_is_not_tried(
    at: int, needed_mib: int, following: int | None
) -> None:
    """Results need not fit beside arguments where they stay in place, so that the first such room is never passed. And
    none that has a smaller heap is tried for anything but arguments."""
    reason = f"the problem is too large: the shared memory is too small: {needed_mib * MIB} bytes needed, 1024 there"
    bench: Any = SimpleNamespace(rooms=ROOMS)
    assert BenchMemory.next_room(bench, at, reason) == following
    assert BenchMemory.next_room(bench, at, "CUDA out of memory") == (at + 1 if at < 4 else None)


ALONE = Alone.of(int(139.8 * 1024 * MIB))
SHARE, WHOLE, WIDE, LONE, SLIM, SPARSE = range(6)


@pytest.mark.parametrize(
    ("at", "reason", "following"),
    [
        (SHARE, "CUDA out of memory", WHOLE),
        (WHOLE, "CUDA out of memory", WIDE),
        (WHOLE, f"{9 * 1024 * MIB} bytes needed, and fewer there", LONE),
        (WHOLE, f"{JUDGES_SIDE}: CUDA out of memory", WIDE),
        (WIDE, "CUDA out of memory", None),
        (WIDE, f"{9 * 1024 * MIB} bytes needed, and fewer there", LONE),
        (WIDE, f"{JUDGES_SIDE}: CUDA out of memory", LONE),
        (LONE, "CUDA out of memory", None),
        (LONE, f"{JUDGES_SIDE}: CUDA out of memory", None),
        (LONE, f"{13 * 1024 * MIB} bytes needed, and fewer there", SLIM),
        (LONE, f"{16 * 1024 * MIB} bytes needed, and fewer there", SPARSE),
    ],
)
def test_of_those_that_have_a_device_alone_the_next_has_what_was_missing(
    at: int, reason: str, following: int | None
) -> None:
    """Larger heaps, larger parts, or more for the judge: nobody has more of all."""
    bench: Any = SimpleNamespace(rooms=(ROOMS[0], *(alone.verdict for alone in ALONE)))
    assert BenchMemory.next_room(bench, at, reason) == following


def limit_arguments(bench: HostBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Host memory is as large as anybody asks for; only what a division has for arguments is to be had here."""
    put = Packer.put

    def limited(self: Packer, tensor: torch.Tensor) -> Any:
        if tensor.nbytes > bench.given[-1].exchange_bytes:
            raise MemoryError(f"the shared memory is too small: {tensor.nbytes} bytes needed, and less there")
        return put(self, tensor)

    monkeypatch.setattr(Packer, "put", limited)


def test_who_says_what_is_missing_is_not_tried_where_it_cannot_fit(
    server: ForkServer,
    windows: Windows,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = (1 << 10, 2 << 10, 1 << 28)
    larger = tuple(Shares(2, 0, size) for size in sizes[1:])
    bench = HostBench(server, 4, 0, sizes[0], larger=larger)
    limit_arguments(bench, monkeypatch)
    monkeypatch.setattr(Shares, "heap_bytes", property(lambda own: max(MIB, own.part_bytes)))
    passed(judge(bench, HONEST, tmp_path, IN_PLACE))
    assert list(dict.fromkeys(bench.given)) == [bench.shares, larger[1]]
    assert bench.large == {PROBLEM.hash: 2}
    bench.close()


def test_what_is_small_beside_its_inputs_is_judged_with_next_to_no_heap(
    server: ForkServer,
    windows: Windows,
    asked: dict[Session, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, lone, slim = (Shares(1, 0, size, num_processes=2, in_place=True) for size in (1 << 10, 2 << 10, 1 << 28))
    alone = tuple(Alone(one, replace(one, num_processes=1)) for one in (whole, lone, slim))
    bench = HostBench(server, 2, 0, 1 << 10, alone=alone)
    limit_arguments(bench, monkeypatch)
    heaps = {whole.part_bytes: 3 * MIB, lone.part_bytes: 4 * MIB, slim.part_bytes: MIB}
    monkeypatch.setattr(Shares, "heap_bytes", property(lambda own: heaps[own.part_bytes]))
    bench.large[PROBLEM.hash] = 1
    passed(judge(bench, HONEST, tmp_path, TWIN))
    assert list(dict.fromkeys(bench.given)) == [alone[0].audit, alone[2].audit, slim], "what it needs was told"
    assert bench.large == {PROBLEM.hash: 3}
    heaps[slim.part_bytes] = 4095
    bench.large[PROBLEM.hash] = 1
    auditor = Auditor(tmp_path / "other")
    for _ in range(2):
        asked.clear()
        ruling = refused(judge(bench, HONEST, tmp_path, TWIN, auditor=auditor))
        assert ruling.status is Status.INVALID_PROBLEM, "it is no candidate's fault"
        assert "beside its inputs" in ruling.message
    assert not asked, "that is known"
    monkeypatch.setattr(audits, "LACK_SECONDS", -1.0)
    auditor.forget_lacks(PROBLEM)
    for _ in range(2):
        asked.clear()
        refused(judge(bench, HONEST, tmp_path, TWIN, auditor=auditor))
        assert asked, "but not for ever: somebody else may have had it"
    bench.close()
