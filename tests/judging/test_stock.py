"""Reference runners that wait for their problem, and sessions that end: who waits for whom."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from kerneldojo import Candidate, Problem
from kerneldojo.judging import stock
from kerneldojo.judging.host import HostBench
from kerneldojo.judging.processes import Session
from kerneldojo.judging.protocol import Protocol
from kerneldojo.judging.submission import Submission

SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return x * FACTOR

def get_inputs():
    return [torch.randn(4)]

def get_init_inputs():
    return []
"""
GOOD = "import torch\nclass ModelNew(torch.nn.Module): pass\n"
FORKING = """
import os, time
for _ in range(COUNT):
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
"""


@pytest.fixture
def bench() -> Generator[HostBench]:
    bench = HostBench()
    yield bench
    bench.close()


def serve(bench: HostBench, factor: int) -> Session:
    """Use the runner of one problem, and give it back; the session that it lives in."""
    problem = Problem(name=f"times_{factor}", source=SOURCE.replace("FACTOR", str(factor)))
    with bench.lent_reference(problem, Protocol(), "h100") as reference:
        return reference.hosted.session


@pytest.mark.parametrize("count", [0, 2, 40])
def test_a_session_in_which_a_candidate_started_processes_is_gone_when_its_verdict_is_given(
    bench: HostBench, count: int
) -> None:
    candidate = Candidate(source=GOOD + FORKING.replace("COUNT", str(count)))
    contestant = bench.contestant(Submission(candidate), Protocol())
    session = contestant.hosted.session
    contestant.load(60.0)
    session.wait_started()
    pids = session.pids()
    assert session.has_company() is (count > 0)
    bench.endings.add(session)
    if count:
        assert session.ended is not None
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_memory_is_spare_by_what_the_machine_says(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Path("/proc/meminfo").read_text().splitlines()
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith("Mem")}
    free = kilobytes["MemAvailable"] / kilobytes["MemTotal"]
    for share, is_spare in ((0.0, True), (free / 2, True), (1.0, False)):
        monkeypatch.setattr(stock, "SPARE_MEMORY", share)
        assert stock._has_spare_memory() is is_spare, (share, free)


def test_more_runners_wait_only_where_memory_is_spare(bench: HostBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stock, "MIN_REFERENCES", 2)
    monkeypatch.setattr(stock, "MAX_REFERENCES", 3)
    monkeypatch.setattr(stock, "SPARE_MEMORY", 0.0)
    first = [serve(bench, factor) for factor in range(4)]
    again = [serve(bench, factor) for factor in (1, 2, 3)]
    assert again == first[1:], "three are kept, and the oldest went"
    monkeypatch.setattr(stock, "SPARE_MEMORY", 1.0)
    assert serve(bench, 1) is first[1]
    assert serve(bench, 3) is first[3]
    assert serve(bench, 2) is not first[2], "it went as another came back: two are kept"
