"""What is known of a problem is not found out again: that it was refused, and where it cannot fit."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gpu_steps import HONEST, IN_PLACE, PROBLEM, HostBench, Windows, judge, passed, refused

from kerneldojo import Problem
from kerneldojo.contestant.arena import Packer
from kerneldojo.judging import cuda
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
ROOMS = (*(Shares(8 // num, 0, size * MIB) for num, size in ((1, 1), (2, 4), (4, 16))), *(
    Shares(1, 0, size * MIB, in_place=True) for size in (64, 96)
))  # fmt: skip


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
        (3, 999, 4),
    ],
)
def test_no_room_is_tried_that_is_too_small_for_what_did_not_fit(at: int, needed_mib: int, following: int) -> None:
    """Results need not fit beside arguments where they stay in place, so that the first such room is never passed."""
    reason = f"the problem is too large: the shared memory is too small: {needed_mib * MIB} bytes needed, 1024 there"
    bench: Any = SimpleNamespace(rooms=ROOMS)
    assert cuda._next_room(bench, at, reason) == following
    assert cuda._next_room(bench, at, "CUDA out of memory") == at + 1


def test_who_says_what_is_missing_is_not_tried_where_it_cannot_fit(
    server: ForkServer,
    windows: Windows,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = (1 << 10, 2 << 10, 1 << 28)
    larger = tuple(Shares(2, 0, size) for size in sizes[1:])
    bench = HostBench(server, 4, 0, sizes[0], larger=larger)
    put = Packer.put

    def limited(self: Packer, tensor: torch.Tensor) -> Any:
        if tensor.nbytes > bench.given[-1].exchange_bytes:
            raise MemoryError(f"the shared memory is too small: {tensor.nbytes} bytes needed, and less there")
        return put(self, tensor)

    monkeypatch.setattr(Shares, "heap_bytes", property(lambda own: max(MIB, own.part_bytes)))
    monkeypatch.setattr(Packer, "put", limited)
    passed(judge(bench, HONEST, tmp_path, IN_PLACE))
    assert list(dict.fromkeys(bench.given)) == [bench.shares, larger[1]]
    assert bench.large == {PROBLEM.hash: 2}
    bench.close()
