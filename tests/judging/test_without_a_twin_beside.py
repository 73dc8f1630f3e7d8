"""What fits beside a contestant and a silent twin not even alone is judged without one: it comes when that is gone."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from test_gpu_steps import (  # noqa: F401 - fixtures
    BUILT,
    HONEST,
    IN_PLACE,
    PROBLEM,
    TWIN,
    HostBench,
    Windows,
    asked,
    judge,
    passed,
    refused,
    server,
    windows,
)

from kerneldojo.judging.processes import ForkServer, Session
from kerneldojo.judging.shares import Alone, Shares
from kerneldojo.schema import Status

GIB = 1 << 30
WHOLE, LONE = Shares(1, 0, 4 << 10), Shares(1, 0, 1 << 28, num_processes=2)
NO_CAUSE = HONEST.replace("return y", "return x * torch.sigmoid(x)")
"""Its kernel runs, and its answer comes from elsewhere."""


@pytest.fixture
def bench(server: ForkServer) -> Generator[HostBench]:  # noqa: F811
    """In whose first room for one alone nothing fits."""
    rooms = (Alone(WHOLE, Shares(1, 0, 4 << 10, num_processes=1)), Alone(LONE, Shares(1, 0, 1 << 28, num_processes=1)))
    bench = HostBench(server, 2, 1, 4 << 10, alone=rooms)
    yield bench
    bench.close()


@pytest.fixture
def beside(asked: dict[Session, list[str]], monkeypatch: pytest.MonkeyPatch) -> list[int]:  # noqa: F811
    """For each process of a verdict, how many others with memory were there when it was made, in the last room."""
    counts: list[int] = []
    new_arena = HostBench.new_arena

    def noted(self: HostBench, inputs: Any, shares: Shares, **options: bool) -> Any:
        if shares == LONE:
            counts.append(sum(session.ended is None and session.has_arena for session in asked))
        return new_arena(self, inputs, shares, **options)

    monkeypatch.setattr(HostBench, "new_arena", noted)
    return counts


def test_who_is_silenced_in_place_needs_none(
    bench: HostBench,
    beside: list[int],
    windows: Windows,  # noqa: F811
    tmp_path: Path,
) -> None:
    findings = passed(judge(bench, HONEST, tmp_path, IN_PLACE))
    assert findings.oracle == "float64"
    assert bench.large == {PROBLEM.hash: 2}
    assert beside == [0, 1], "a runner, and a contestant"
    assert len(windows.drawn) == 1


def test_a_twin_comes_when_the_contestant_has_left(
    bench: HostBench,
    beside: list[int],
    windows: Windows,  # noqa: F811
    tmp_path: Path,
) -> None:
    passed(judge(bench, HONEST, tmp_path, TWIN))
    assert beside == [0, 1, 1]
    assert windows.drawn == [], "who is to have a twin is not silenced where it was timed"


@pytest.mark.parametrize("settings", [IN_PLACE, TWIN], ids=["in place", "a twin"])
def test_whose_kernels_do_not_cause_the_answer_is_found_out(
    bench: HostBench,
    beside: list[int],
    windows: Windows,  # noqa: F811
    tmp_path: Path,
    settings: Any,
) -> None:
    ruling = refused(judge(bench, NO_CAUSE, tmp_path, settings))
    assert ruling.status is Status.EXPLOIT
    assert beside == [0, 1, 1]


def test_an_extension_is_built_by_each_of_them(
    bench: HostBench,
    beside: list[int],
    windows: Windows,  # noqa: F811
    tmp_path: Path,
) -> None:
    findings = passed(judge(bench, BUILT, tmp_path, IN_PLACE))
    assert beside == [0, 1, 1]
    assert findings.num_built is None, "there was no workshop, for they do not build at the same time"


@pytest.mark.parametrize("gib", [24, 79.6, 139.8])
def test_without_a_twin_beside_larger_tensors_fit(gib: float) -> None:
    total = int(gib * GIB)
    (whole, auditing), (lone, lone_auditing) = Alone.of(total)
    assert whole.has_twin_beside and not lone.has_twin_beside
    for division in (whole, auditing, lone, lone_auditing):
        assert division.most_bytes <= total
        assert division.in_place
    assert lone.exchange_bytes > 1.3 * whole.exchange_bytes
    assert lone.heap_bytes > lone.runner_heap_bytes > 2 * lone.exchange_bytes
    assert lone.inputs_bytes >= 2 * lone.exchange_bytes - 2
    assert lone_auditing.exchange_bytes == lone.exchange_bytes
    assert whole.runner_heap_bytes == whole.heap_bytes


def test_the_elementwise_problems_of_kernelbench_fit_80_gb() -> None:
    assert Alone.of(81_559 << 20)[-1].verdict.exchange_bytes > 4096 * 393_216 * 4
