"""Workers that are killed, hang, or take each other along: real processes, really ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pooled import MODEL, command, is_running, sleeper, wait_until, workers

from kerneldojo.contestant.sandbox import processes
from kerneldojo.pool import LocalPool, PoolConfig
from kerneldojo.pool.placement import PooledDevice
from kerneldojo.pool.worker_process import WorkerProcess
from kerneldojo.schema import Status

QUICK = PoolConfig(backoff_seconds=0.05, accept_seconds=10.0, margin_seconds=2.0)
"""Impatient with a job that names a timeout of its own; the others have the protocol's two minutes."""


@pytest.fixture(scope="module")
def pool() -> Generator[LocalPool]:
    pool = LocalPool([MODEL], num_slots=1, config=QUICK)
    yield pool
    pool.close()


@contextmanager
def meanwhile(action: signal.Signals, pool: LocalPool) -> Generator[None]:
    """Do that to the worker whenever a candidate runs in it."""
    stop = threading.Event()

    def strike() -> None:
        struck: set[int] = set()
        while not stop.wait(0.02):
            present = set(workers()) - struck  # Before the look at the pool, so that none of them is still starting.
            if is_running(pool) and pool.devices()[0].is_healthy:
                for pid in present:
                    struck.add(pid)
                    with suppress(ProcessLookupError):
                        os.kill(pid, action)

    thread = threading.Thread(target=strike)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_candidate_that_always_loses_its_worker_is_scored_for_it(pool: LocalPool) -> None:
    with meanwhile(signal.SIGKILL, pool):
        verdict = pool.submit(sleeper(3.0, "killed always")).result(120)
    assert verdict.status is Status.RUNTIME_ERROR
    assert "signal 9" in verdict.message
    assert "alone" in verdict.message


def test_a_worker_that_hangs_is_killed_and_its_job_judged_again(pool: LocalPool) -> None:
    with meanwhile(signal.SIGSTOP, pool):
        verdict = pool.submit(sleeper(3.0, "hangs always", timeout=1.0)).result(120)
    assert verdict.status is Status.TIMEOUT
    assert "alone" in verdict.message


def test_a_job_whose_worker_is_killed_is_judged_again(pool: LocalPool) -> None:
    future = pool.submit(sleeper(1.0, "killed once"))
    wait_until(lambda: is_running(pool))
    (worker,) = workers()
    servers = set(processes.children(worker))
    assert servers
    os.kill(worker, signal.SIGKILL)
    assert future.result(200).status is not Status.INFRASTRUCTURE_ERROR
    assert "worker" not in future.result().message
    wait_until(lambda: not any(processes.is_alive(pid) for pid in servers), 30)
    assert workers() != [worker]


class PairedPool(LocalPool):
    """Two verdicts at once in one worker, as on a GPU."""

    def _add(self, device: PooledDevice, num_lanes: int) -> None:
        super()._add(device, 2)


def test_neighbours_in_a_lost_worker_are_judged_again_one_at_a_time() -> None:
    pool = PairedPool([MODEL], num_slots=1, config=QUICK)
    futures = [pool.submit(sleeper(1.0, f"neighbour {i}")) for i in range(2)]
    wait_until(lambda: len(pool.devices()[0].running) == 2 and is_running(pool))
    holder = pool._slots[0]._worker
    assert isinstance(holder, WorkerProcess)
    os.kill(holder.pid, signal.SIGKILL)
    most = 0
    while not all(future.done() for future in futures):
        is_new = pool._slots[0]._worker is not holder  # Before the look at the pool: it is well with this worker.
        state = pool.devices()[0]
        if is_new and state.is_healthy:
            most = max(most, len(state.running))
        time.sleep(0.02)
    assert most == 1
    assert not any("worker" in future.result().message for future in futures)
    pool.close()


OWNER = """
import sys, time
sys.path.insert(0, {folder!r})
from pooled import MODEL, sleeper
from kerneldojo.pool import LocalPool
pool = LocalPool([MODEL], num_slots=1)
pool.submit(sleeper(60, "orphan"))
while True:
    time.sleep(0.05)
    print([text for state in pool.devices() for text in state.running], flush=True)
"""


def test_nothing_outlives_the_owner_of_a_pool() -> None:
    code = OWNER.format(folder=str(Path(__file__).parent))
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    for line in owner.stdout:
        if "swish: build" in line:
            break
    below = processes.descendants(owner.pid)
    assert len(below) >= 4, "a worker, a fork server, a keeper and a contestant at least"
    owner.kill()
    owner.wait()
    owner.stdout.close()
    wait_until(lambda: not [pid for pid in below if processes.is_alive(pid)], 30)
    assert [command(pid) for pid in below if processes.is_alive(pid)] == []
