"""Peers beside ours (`benchmarks/throughput_peers.py`): what a peer told counts, however it ended."""

import sys
import time
from pathlib import Path

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from throughput_peers import last_line, peer_summary, run_peer, told

ENDLESS = """
import subprocess, sys, time
child = subprocess.Popen(["sleep", "300"])
print("RESULT " + '{"correct": true, "seconds": 2.0}', flush=True)
print(child.pid, flush=True)
time.sleep(300)
"""


def has_ended(pid: int) -> bool:
    """Killed is not gone at once, and nobody may ever collect who has lost its parent."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_peer_that_does_not_end_is_ended_with_its_children_and_what_it_told_is_kept(tmp_path: Path) -> None:
    done = run_peer([sys.executable, "-c", ENDLESS], tmp_path, 5.0)
    first, child = done.stdout.splitlines()
    assert first.startswith("RESULT ")
    assert last_line(done) == "cut short after 5 s"
    until = time.monotonic() + 20
    while not has_ended(int(child)):
        assert time.monotonic() < until, "its child runs on"
        time.sleep(0.05)


def test_a_peer_that_ends_is_not_cut_short(tmp_path: Path) -> None:
    found = told([sys.executable, "-c", """print('RESULT {"correct": true}')"""], tmp_path, 60.0)
    assert found == {"correct": True}
    found = told([sys.executable, "-c", "import sys; sys.exit('it needs a library')"], tmp_path, 60.0)
    assert found == {"correct": False, "error": "it needs a library"}


def test_only_what_ended_as_it_should_says_how_long_one_takes() -> None:
    found = [{"correct": True}, {"correct": False, "error": "x"}, {"correct": False}]
    summary = peer_summary([30.0], found)
    assert (summary["per_minute"], summary["evaluations"], summary["correct"]) == (pytest.approx(2.0), 3, 1)
    assert summary["errors"] == {"x": 1, "judged incorrect": 1}
