"""A problem that was found not to be one is not found so again for each candidate of it."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest
from test_gpu_steps import (  # noqa: F401 - fixtures
    HONEST,
    IN_PLACE,
    PROBLEM,
    HostBench,
    Windows,
    asked,
    judge,
    passed,
    refused,
    server,
    windows,
)

from kerneldojo import Problem
from kerneldojo.judging.processes import ForkServer, Session
from kerneldojo.schema import Status

DEGENERATE = Problem(
    name="identity",
    source=PROBLEM.source.replace("x * torch.sigmoid(x)", "torch.relu(x)").replace("torch.randn", "torch.rand"),
)
COPY = HONEST.replace("x * tl.sigmoid(x)", "tl.maximum(x, 0.0)")


@pytest.fixture
def bench(server: ForkServer) -> Generator[HostBench]:  # noqa: F811
    bench = HostBench(server, 2, 0)
    yield bench
    bench.close()


@pytest.mark.parametrize("is_large", [False, True])
def test_its_candidates_cost_nothing_once_that_is_known(
    bench: HostBench,
    asked: dict[Session, list[str]],  # noqa: F811
    windows: Windows,  # noqa: F811
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
