"""Which jobs a pool takes, and what it does with those that no device of theirs serves; workers are played here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from pooled import MODEL, honest, wait_until

from kerneldojo.pool import PoolConfig
from kerneldojo.pool.dispatcher import Dispatcher
from kerneldojo.pool.faults import Sick
from kerneldojo.pool.placement import local_device
from kerneldojo.pool.slot import Slot
from kerneldojo.schema import Evaluation, Job, Status


class Played:
    """A worker that gives one verdict to everybody."""

    description, is_alive, is_gone = "", True, True

    def __init__(self, status: Status) -> None:
        self.status = status

    def judge(self, device: str, job: Job, on_stage: Callable[[str], None]) -> Evaluation:
        time.sleep(0.02)
        hashes = {"problem_hash": job.problem.hash, "candidate_hash": job.candidate.hash}
        return Evaluation(status=self.status, message="played", **hashes)

    def ping(self) -> None: ...

    def kill(self, cause: str, reason: str) -> None: ...

    def close(self) -> None:
        self.is_alive = False


def dispatcher(config: PoolConfig, **make_worker: Callable[[], Played]) -> Dispatcher:
    """One with a slot of two lanes for each device, whose workers are made so."""
    made = Dispatcher(config)
    for name, make in make_worker.items():
        device = local_device(name.replace("_", ":"))
        made._devices[device.name] = device
        made._slots.append(Slot(made, device, 2, make, lambda: None, config))
    for slot in made._slots:
        slot.start()
    return made


def test_a_worker_with_faults_in_a_row_is_replaced_while_jobs_wait() -> None:
    """The queue behind it would never leave it empty by itself, and it would spoil all of it."""
    made: list[Played] = []

    def make() -> Played:
        made.append(Played(Status.COMPILE_ERROR if made else Status.INFRASTRUCTURE_ERROR))
        return made[-1]

    pool = dispatcher(PoolConfig(backoff_seconds=0.01), model_h100=make)
    futures = [pool.submit(honest(salt=f"{i}")) for i in range(60)]
    assert {future.result(60).status for future in futures} == {Status.COMPILE_ERROR}
    assert len(made) == 2
    assert not made[0].is_alive
    pool.close()


def test_workers_that_take_their_time_to_end_do_so_together() -> None:
    """One after the other, eight that do not listen would keep whoever closes the pool for two minutes."""
    together = threading.Barrier(3)

    class Slow(Played):
        def close(self) -> None:
            together.wait(30)
            super().close()

    def make() -> Slow:
        return Slow(Status.COMPILE_ERROR)

    pool = dispatcher(PoolConfig(), model_h100=make, model_a100=make, cpu=make)
    wait_until(lambda: all(not slot.reason for slot in pool._slots))
    pool.close()
    assert not together.broken


def test_closing_gives_up_on_what_no_device_of_its_own_serves() -> None:
    """Another device that is well is no hope for it."""

    def sick() -> Played:
        raise Sick("not today")

    pool = dispatcher(
        PoolConfig(start_seconds=0.5, backoff_seconds=0.05), model_h100=sick, cpu=lambda: Played(Status.COMPILE_ERROR)
    )
    other = pool.submit(honest(salt="other").model_copy(update={"device": "cpu"}))
    lost = pool.submit(honest(salt="lost"))
    pool.close()
    assert other.result(0).status is Status.COMPILE_ERROR
    assert lost.result(0).status is Status.INFRASTRUCTURE_ERROR
    assert "no device of its own" in lost.result(0).message


def test_a_job_is_too_large_with_all_that_it_holds() -> None:
    """Sent, it would look as though the worker did not listen."""
    pool = dispatcher(PoolConfig(), model_h100=lambda: Played(Status.COMPILE_ERROR))
    job = honest(salt="noted")
    noted = job.model_copy(update={"problem": job.problem.model_copy(update={"notes": "n" * (9 << 20)})})
    with pytest.raises(ValueError, match="too large"):
        pool.submit(noted)
    assert pool.submit(job).result(60).status is Status.COMPILE_ERROR
    assert MODEL in {state.name for state in pool.devices()}
    pool.close()
