"""Workers that are killed, hang, or take each other along: real processes, really ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pooled import MODEL, QUICK, command, honest, sleeper, wait_until, workers, workers_for

from descriptors import open_files
from kerneldojo.contestant.sandbox import processes
from kerneldojo.contestant.scratch import Scratch
from kerneldojo.pool import LocalPool, PoolConfig, worker_process
from kerneldojo.pool.faults import Sick, WorkerLost
from kerneldojo.pool.local_pool import check_device
from kerneldojo.pool.placement import local_device
from kerneldojo.pool.queue import Task
from kerneldojo.pool.slot import Slot
from kerneldojo.schema import Evaluation, Job, Status


@pytest.fixture(scope="module")
def pool() -> Generator[LocalPool]:
    """One device alone, which has three verdicts at once: what is hurt here starts again, and two would twice."""
    pool = LocalPool([MODEL], num_slots=3, config=QUICK)
    yield pool
    pool.close()


def named(job: Job, name: str) -> Job:
    return job.model_copy(update={"problem": job.problem.model_copy(update={"name": name})})


def running(pool: LocalPool) -> list[str]:
    """Problems that are being judged, with their stages."""
    return [text for state in pool.devices() for text in state.running]


def worker_of(pool: LocalPool) -> int:
    """Its one worker for `MODEL`, once it is well."""

    def alive() -> list[int]:
        return [pid for pid in workers_for(MODEL) if processes.is_alive(pid)]

    wait_until(lambda: len(alive()) == 1 and pool.devices()[0].is_healthy)
    return alive()[0]


@contextmanager
def meanwhile(action: signal.Signals, pool: LocalPool, is_time: Callable[[list[str]], bool]) -> Generator[list[int]]:
    """Do that to each worker once, when what runs in it says that it is time; tells which were struck."""
    stop = threading.Event()
    struck: list[int] = []

    def strike() -> None:
        while not stop.wait(0.05):
            # Before the look at the pool, so that none of them is still starting.
            present = set(workers_for(MODEL)) - set(struck)
            if present and pool.devices()[0].is_healthy and is_time(running(pool)):
                for pid in present:
                    struck.append(pid)
                    with suppress(ProcessLookupError):
                        os.kill(pid, action)

    thread = threading.Thread(target=strike)
    thread.start()
    try:
        yield struck
    finally:
        stop.set()
        thread.join()


def test_one_that_takes_its_worker_down_twice_is_scored_and_the_innocent_beside_it_are_not(pool: LocalPool) -> None:
    worker = worker_of(pool)
    servers = set(processes.children(worker))
    assert servers
    company: list[int] = []
    """How many were in a worker together with one of the three that saw the first loss."""

    def is_time(now: list[str]) -> bool:
        """When the culprit is being built: the first time not before the others are too."""
        building = [text for text in now if text.endswith(": build")]
        if company or len(building) == 3:
            company.extend(len(now) for text in building if not text.startswith("swish"))
        return bool(company) and "culprit: build" in now

    with meanwhile(signal.SIGKILL, pool, is_time) as struck:
        culprit = pool.submit(named(sleeper(4.0, "kills"), "culprit"))
        beside = [pool.submit(named(sleeper(2.0 + i, "innocent"), f"beside {i}")) for i in range(2)]
        after = pool.submit(honest(salt="after a fault"))
        verdict = culprit.result(180)
        assert [future.result(180).status for future in beside] == [Status.COMPILE_ERROR] * 2
        assert after.result(180).status is Status.PASSED
    assert verdict.status is Status.RUNTIME_ERROR
    assert "signal 9" in verdict.message
    assert "alone" in verdict.message
    assert not any("worker" in future.result().message for future in beside)
    assert set(company[:3]) == {3}
    assert set(company[3:]) == {1}, "all three were suspects, and judged alone"
    assert len(struck) == 2, "its second loss was held against it, and ended it"
    wait_until(lambda: not any(processes.is_alive(pid) for pid in servers), 30)
    assert worker_of(pool) not in struck


def test_what_is_closed_has_been_cleared_up_whoever_found_it_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(pid: int) -> list[tuple[int, str]]:
        time.sleep(0.5)
        return session_of(pid)

    session_of = worker_process._session_of
    monkeypatch.setattr(worker_process, "_session_of", slowly)
    worker = worker_process.WorkerProcess(MODEL, 1, PoolConfig())
    reader = next(one for one in threading.enumerate() if one.name == f"reader of worker {worker.pid}")
    os.kill(worker.pid, signal.SIGKILL)
    wait_until(lambda: worker._is_lost)
    worker.close()
    assert not reader.is_alive() and not worker.is_alive
    worker.close()


def test_a_worker_that_cannot_be_started_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(Sick, match="no temporary folder"):
        worker_process.WorkerProcess(MODEL, 1, PoolConfig())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    open_before = open_files()
    with pytest.raises(Sick, match="did not start: No such file"):
        worker_process.WorkerProcess(MODEL, 1, PoolConfig())
    assert list(tmp_path.iterdir()) == []
    assert open_files() - open_before == set()


BROKEN_WORKER = """
import socket, sys
from kerneldojo.contestant.wire import Channel
channel = Channel(socket.socket(fileno=int(sys.argv[1])))
channel.send({"ready": True})
channel.send({"id": channel.receive(60)["id"], "stage": "rounds", "seconds": 60})
channel.send({"id": channel.receive(60)["id"], "broken": "its context broke"})
channel.receive(60)
"""


SLOW_WORKER = """
import socket, sys, time
from kerneldojo.contestant.wire import Channel
channel = Channel(socket.socket(fileno=int(sys.argv[1])))
channel.send({"ready": True})
number = channel.receive(60)["id"]
channel.send({"id": number, "begun": 0.1})
for stage, seconds, nap in (("start", 0.1, 0.6), ("turn", 2.0, 2.4), ("audit", 1.5, 1.8), ("build", 0.1, 600.0)):
    channel.send({"id": number, "stage": stage, "seconds": seconds})
    time.sleep(nap)
"""


DEAF_WORKER = """
import socket, sys, time
from kerneldojo.contestant.wire import Channel
channel = Channel(socket.socket(fileno=int(sys.argv[1])))
channel.send({"ready": True})
time.sleep(600)
"""


def test_a_worker_that_cannot_be_killed_holds_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that hangs in a driver: what waits is told, and only then is there time for it to go."""
    play_worker(DEAF_WORKER, tmp_path, monkeypatch)
    monkeypatch.setattr(worker_process, "_DEATH_SECONDS", 0.2)
    worker = worker_process.WorkerProcess(MODEL, 1, PoolConfig(accept_seconds=0.5))
    kill = worker._process.kill
    monkeypatch.setattr(worker._process, "kill", lambda: None)
    before = time.process_time()
    with pytest.raises(WorkerLost) as lost:
        worker.judge(MODEL, honest(salt="deaf"), lambda _: None)
    assert time.process_time() - before < 0.4, "nobody spins meanwhile"
    assert lost.value.cause == "hung"
    worker.close()
    assert not worker.is_alive and not worker.is_gone
    kill()
    wait_until(lambda: worker.is_gone)


def test_a_worker_hangs_once_a_stage_takes_longer_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not while it waits its turn behind others, nor because several stages take their time."""
    play_worker(SLOW_WORKER, tmp_path, monkeypatch)
    worker = worker_process.WorkerProcess(MODEL, 1, PoolConfig(margin_seconds=1.0))
    stages: list[str] = []
    with pytest.raises(WorkerLost) as lost:
        worker.judge(MODEL, honest(salt="slow"), stages.append)
    assert lost.value.cause == "hung"
    assert stages == ["start", "turn", "audit", "build"]
    worker.close()


def play_worker(source: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers of this process be that program."""
    (folder / "worker.py").write_text(source)
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {folder}/worker.py "$4"\n')
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))


def test_a_worker_that_is_past_use_is_ended_and_nobody_in_it_is_to_blame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play_worker(BROKEN_WORKER, tmp_path, monkeypatch)
    worker = worker_process.WorkerProcess(MODEL, 2, PoolConfig())
    told: dict[str, WorkerLost] = {}
    has_begun = threading.Event()

    def judge(name: str) -> None:
        with pytest.raises(WorkerLost) as lost:
            worker.judge(MODEL, honest(salt=name), lambda _: has_begun.set())
        told[name] = lost.value

    threads = [threading.Thread(target=judge, args=(name,)) for name in ("beside", "present")]
    threads[0].start()
    assert has_begun.wait(60)
    threads[1].start()
    for thread in threads:
        thread.join()
    assert (told["beside"].cause, told["present"].cause) == ("elsewhere", "fault")
    assert str(told["present"]) == "its context broke"
    assert not worker.is_alive and not processes.is_alive(worker.pid)
    worker.close()


def test_whatever_keeps_a_worker_from_starting_a_slot_tries_again() -> None:
    troubles: list[Exception] = [OSError("no room"), RuntimeError("a secret"), Sick("not now")]
    told: list[str] = []

    class Owner:
        def next_task(self, slot: Slot, timeout: float) -> Task | None:
            time.sleep(0.01)

        def finish(self, slot: Slot, task: Task, evaluation: Evaluation) -> None: ...

        def lost(self, slot: Slot, task: Task, loss: WorkerLost) -> None: ...

        def note(self, slot: Slot, task: Task, stage: str) -> None: ...

        def change_health(self, slot: Slot, reason: str) -> None:
            told.append(reason)

        def is_closed(self, slot: Slot) -> bool:
            return told[-1:] == [""]

    class Worker:
        description, is_alive, is_gone = "", True, False

        def judge(self, device: str, job: Job, on_stage: Callable[[str], None]) -> Evaluation:
            raise AssertionError

        def ping(self) -> None: ...

        def kill(self, cause: str, reason: str) -> None: ...

        def close(self) -> None: ...

    def make() -> Worker:
        if troubles:
            raise troubles.pop(0)
        return Worker()

    slot = Slot(Owner(), local_device(MODEL), 1, make, lambda: None, PoolConfig(backoff_seconds=0.01))
    slot.start()
    wait_until(lambda: told[-1:] == [""])
    slot.close()
    assert told == ["OSError in the pool", "RuntimeError in the pool", "not now", ""]


def test_a_worker_that_hangs_is_killed_and_its_job_judged_again(pool: LocalPool) -> None:
    worker_of(pool)
    with meanwhile(signal.SIGSTOP, pool, lambda now: "swish: build" in now) as struck:
        verdict = pool.submit(sleeper(3.0, "hangs always", timeout=1.0)).result(180)
    assert verdict.status is Status.TIMEOUT
    assert "alone" in verdict.message
    assert struck


def test_a_device_that_gives_no_sign_of_life_leaves_the_pool_and_comes_back(pool: LocalPool) -> None:
    worker = worker_of(pool)
    os.kill(worker, signal.SIGSTOP)
    time.sleep(1.5)  # A check falls into this pause; it is answered late, but before its deadline.
    os.kill(worker, signal.SIGCONT)
    time.sleep(0.5)
    assert worker_of(pool) == worker, "slow is not sick"
    os.kill(worker, signal.SIGSTOP)
    wait_until(lambda: not pool.devices()[0].is_healthy)
    assert "no sign of life" in pool.devices()[0].reason
    future = pool.submit(sleeper(0.1, "while it is away"))
    assert running(pool) == []
    before = time.process_time()
    assert future.result(180).status is Status.COMPILE_ERROR
    assert time.process_time() - before < 2.0, "nobody spins while a device is away"
    assert worker_of(pool) != worker
    assert not processes.is_alive(worker)


def kill_keepers(worker: int) -> None:
    """Kill the processes that watch the contestants of a worker: nothing that a contestant could do."""
    below = processes.descendants(worker)
    keepers = [pid for pid in below if is_here(pid) and any(map(is_inside, processes.children(pid)))]
    if all(map(is_here, below)):  # No PID namespaces on this host.
        keepers = [pid for server in processes.children(worker) for pid in processes.children(server)]
    processes.send(keepers, signal.SIGKILL)


def is_here(pid: int) -> bool:
    """Whether a process is in our PID namespace."""
    return namespace(pid) == namespace(os.getpid())


def is_inside(pid: int) -> bool:
    """Whether it is the first of another, and so its keeper's child."""
    with suppress(OSError):
        numbers = next(
            line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("NSpid")
        )
        return not is_here(pid) and numbers.split()[-1] == "1"
    return False


def namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def test_a_fault_of_ours_is_tried_again(pool: LocalPool) -> None:
    worker = worker_of(pool)
    future = pool.submit(sleeper(2.0, "faulty once"))
    wait_until(lambda: "swish: build" in running(pool))
    kill_keepers(worker)
    assert future.result(180).status is Status.COMPILE_ERROR
    assert worker_of(pool) == worker


def test_a_fork_server_that_dies_costs_its_worker_and_nobody_a_verdict(pool: LocalPool) -> None:
    """Who was present may have done it, and is judged again alone."""
    worker = worker_of(pool)
    future = pool.submit(sleeper(2.0, "its server dies"))
    wait_until(lambda: "swish: build" in running(pool))
    processes.send(processes.children(worker), signal.SIGKILL)
    assert future.result(180).status is Status.COMPILE_ERROR
    assert worker_of(pool) != worker


def test_a_fault_of_ours_that_does_not_end_is_told_and_not_remembered(pool: LocalPool) -> None:
    worker, stop = worker_of(pool), threading.Event()

    def strike() -> None:
        while not stop.wait(0.1):
            if "swish: build" in running(pool):
                kill_keepers(worker)

    thread = threading.Thread(target=strike)
    thread.start()
    try:
        verdict = pool.submit(sleeper(2.0, "faulty always")).result(180)
    finally:
        stop.set()
        thread.join()
    assert verdict.status is Status.INFRASTRUCTURE_ERROR
    assert verdict.message.startswith("our fault")
    wait_until(lambda: not pool.devices()[0].is_healthy)
    assert pool.devices()[0].reason.startswith("faults in a row")
    assert pool.submit(sleeper(2.0, "faulty always")).result(180).status is Status.COMPILE_ERROR
    assert worker_of(pool) != worker


def test_a_gpu_that_is_not_there_fails_its_check() -> None:
    with pytest.raises(Sick, match="a tiny kernel failed"):
        check_device("cuda:99", 120.0)
    with pytest.raises(Sick, match="did not end within"):
        check_device("cuda:99", 0.01)
    check_device("cpu", 0.01)


OWNER = """
import sys, time
sys.path.insert(0, {folder!r})
from pooled import MODEL, sleeper
from kerneldojo.pool import LocalPool, PoolConfig, worker_process
pool = LocalPool([MODEL], num_slots=1)
pool.submit(sleeper(60, "orphan"))
while True:
    time.sleep(0.05)
    print([text for state in pool.devices() for text in state.running], flush=True)
"""


def test_nothing_outlives_the_owner_of_a_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = OWNER.format(folder=str(Path(__file__).parent))
    tmp_path.chmod(0o711)  # Contestants pass through it.
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
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
    assert len(list(tmp_path.iterdir())) == 1, "what its worker wrote, all in one folder"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    Scratch().close()  # As any pool or judge makes one that starts on this host.
    assert not list(tmp_path.iterdir())


def test_a_pool_that_is_closed_with_patience_ends_what_runs_longer() -> None:
    """What was done in time has its verdict, what waited is given up, and nobody is blamed."""
    others = set(workers())
    pool = LocalPool([MODEL], num_slots=2, config=QUICK)
    quick, slow, *waiting = [pool.submit(sleeper(nap, f"patience {nap}", timeout=600)) for nap in (1, 300, 301, 302)]
    wait_until(lambda: quick.running() and slow.running() and any(": build" in text for text in running(pool)))
    mine = set(workers()) - others
    began = time.monotonic()
    pool.close(drain=True, patience=4.0)
    assert time.monotonic() - began < 20
    wait([quick, slow, *waiting], 0)
    assert quick.result().status is not Status.INFRASTRUCTURE_ERROR
    assert [one.result().message for one in (slow, *waiting)] == ["the pool was stopped"] * 3
    assert mine and not any(processes.is_alive(pid) for pid in mine)


def test_closing_without_draining_cancels_what_has_not_begun(pool: LocalPool) -> None:
    """The last test of the shared pool: nothing can be asked of it afterwards."""
    worker_of(pool)
    futures = [pool.submit(sleeper(0.5, f"undrained {i}")) for i in range(6)]
    wait_until(lambda: all(future.running() for future in futures[:3]))
    pool.close(drain=False)
    wait(futures, 0)
    assert [future.cancelled() for future in futures] == [False] * 3 + [True] * 3
    assert workers() == []
