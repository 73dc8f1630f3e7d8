"""A pool of this machine's devices: real workers, real verdicts."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from pooled import MODEL, broken, honest, sleeper, wait_until, workers

from descriptors import open_files
from kerneldojo.contestant.sandbox import processes
from kerneldojo.pool import LocalPool, PoolConfig, evaluate, open_pool
from kerneldojo.pool.faults import Sick
from kerneldojo.pool.verdict_cache import VerdictCache
from kerneldojo.schema import Evaluation, Job, Status


def test_every_device_judges_its_own(pool: LocalPool) -> None:
    modelled, interpreted = pool.submit(honest()), pool.submit(honest(device="cpu"))
    assert modelled.result(180).status is interpreted.result(180).status is Status.PASSED
    assert (modelled.result().timing_source, interpreted.result().timing_source) == ("modeled", None)
    assert [state.is_healthy for state in pool.devices()] == [True, True]
    assert all(state.num_done >= 1 for state in pool.devices())


def test_auto_is_the_best_kind_of_device_there_is(pool: LocalPool) -> None:
    assert pool.submit(broken("auto", device="auto")).result(60).device == MODEL


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "model:a100", "nonsense"])
def test_a_job_that_no_device_can_serve_is_refused(pool: LocalPool, device: str) -> None:
    with pytest.raises(ValueError, match=r"no device of this pool serves '.*'; it has cpu, model:h100"):
        pool.submit(broken(device=device))


def test_a_source_beyond_all_bounds_is_refused(pool: LocalPool) -> None:
    with pytest.raises(ValueError, match="too large"):
        pool.submit(broken("x" * (9 << 20)))


def test_odd_characters_reach_the_judge(pool: LocalPool) -> None:
    assert pool.submit(broken("\ud800 \0 \x1b")).result(60).status is Status.COMPILE_ERROR


def test_equal_jobs_are_judged_once_unless_asked_afresh(pool: LocalPool) -> None:
    def num_done() -> int:
        return sum(state.num_done for state in pool.devices())

    before = num_done()
    together = [pool.submit(sleeper(0.2, "equal")) for _ in range(5)]
    verdicts = [future.result(60) for future in together]
    assert num_done() == before + 1
    assert all(verdict == verdicts[0] for verdict in verdicts)
    assert pool.submit(sleeper(0.2, "equal")).result(60) == verdicts[0]
    assert num_done() == before + 1
    assert pool.submit(sleeper(0.2, "equal", fresh=True)).result(60).status is verdicts[0].status
    assert num_done() == before + 2


def test_a_job_can_be_cancelled_until_it_runs(pool: LocalPool) -> None:
    running = [pool.submit(sleeper(1.0, f"first {i}")) for i in range(3)]
    wait_until(lambda: all(future.running() for future in running))
    waiting = pool.submit(sleeper(1.0, "second"))
    assert waiting.cancel()
    assert not any(future.cancel() for future in running)
    assert {future.result(60).status for future in running} == {Status.COMPILE_ERROR}


def test_a_coroutine_can_wait_for_a_verdict(pool: LocalPool) -> None:
    async def both() -> list[Evaluation]:
        return await asyncio.gather(evaluate(pool, broken("one")), evaluate(pool, broken("two")))

    assert [verdict.status for verdict in asyncio.run(both())] == [Status.COMPILE_ERROR] * 2


def test_what_a_device_does_is_seen(pool: LocalPool) -> None:
    future = pool.submit(sleeper(0.5, "seen"))
    wait_until(lambda: any("swish: build" in text for state in pool.devices() for text in state.running))
    future.result(60)
    assert not any(state.running for state in pool.devices())


def test_a_closed_pool_has_finished_what_it_took_leaves_nothing_and_its_verdicts_serve_the_next(tmp_path: Path) -> None:
    before, files = set(workers()), open_files()
    folder = Path(tempfile.gettempdir())
    config = PoolConfig(cache_folder=tmp_path / "verdicts")
    jobs: list[Job] = [*(broken(f"drain {i}") for i in range(5)), honest(salt="kept")]
    mine = LocalPool([MODEL], num_slots=1, config=config)
    futures = [mine.submit(job) for job in jobs]
    wait_until(lambda: len(set(workers()) - before) == 1)
    wait_until(lambda: any(state.is_healthy for state in mine.devices()))
    (worker,) = set(workers()) - before
    environment = dict(
        line.split(b"=", 1) for line in Path(f"/proc/{worker}/environ").read_bytes().split(b"\0") if line
    )
    assert environment[b"OMP_NUM_THREADS"] == b"1"
    scratch = Path(environment[b"TMPDIR"].decode())
    assert scratch.parent == folder
    mine_alone = set(workers()) - before
    servers = {child for pid in mine_alone for child in processes.children(pid)}
    mine.close()
    assert [future.result(0).status for future in futures] == [Status.COMPILE_ERROR] * 5 + [Status.PASSED]
    assert not any(processes.is_alive(pid) for pid in mine_alone | servers)
    assert open_files() - files == set()
    assert not scratch.exists()
    with pytest.raises(RuntimeError, match="closed"):
        mine.submit(broken())
    following = LocalPool([MODEL], num_slots=1, config=config)
    assert [following.submit(job).result(0) for job in jobs] == [future.result() for future in futures]
    following.close()
    assert set(workers()) == before, "a worker that was still starting is not waited for"
    assert open_files() - files == set()


def test_settings_for_gpus_do_no_harm_where_there_is_none() -> None:
    pool = LocalPool([MODEL], 1, PoolConfig(num_verdicts_per_gpu=8))
    try:
        assert [state.name for state in pool.devices()] == [MODEL]
    finally:
        pool.close(drain=False)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_workers_keep_to_the_cores_that_are_named() -> None:
    before, core = set(workers()), max(os.sched_getaffinity(0))
    pool = LocalPool([MODEL], config=PoolConfig(cores=(core,)))
    try:
        assert pool.num_slots == 1, "by default one a core, of those"
        wait_until(lambda: all(state.is_healthy for state in pool.devices()))
        (worker,) = set(workers()) - before
        masks = [os.sched_getaffinity(pid) for pid in (worker, *processes.children(worker))]
        assert masks == [{core}] * len(masks) and len(masks) > 1
    finally:
        pool.close(drain=False)


def test_gpus_share_the_cores_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, tuple[int, list[int]]] = {}

    def make(device: str, num_lanes: int, config: PoolConfig, cores: Sequence[int], is_wanted: object) -> None:
        made[device] = (num_lanes, list(cores))
        raise Sick("no such device")

    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr("kerneldojo.pool.local_pool.WorkerProcess", make)
    monkeypatch.setattr("kerneldojo.pool.local_pool.check_device", lambda *_: None)
    for cores, lanes in ((range(4, 32), 7), (range(4, 12), 2)):
        pool = LocalPool(["cuda:1", "cuda:2"], config=PoolConfig(cores=tuple(cores)))
        wait_until(lambda: len(made) == 2)
        pool.close(drain=False)
        half = len(cores) // 2
        assert made == {"cuda:1": (lanes, list(cores)[:half]), "cuda:2": (lanes, list(cores)[half:])}
        made.clear()


def test_only_lasting_verdicts_are_remembered(tmp_path: Path) -> None:
    cache = VerdictCache(2, tmp_path)
    for number, status in enumerate(Status):
        cache.put(status, Evaluation(status=status, correct=status is Status.PASSED, exploits=evidence(status)))
        assert number < 12
    kept = {status for status in Status if cache.get(status) is not None}
    assert set(Status) - kept == {Status.INFRASTRUCTURE_ERROR, Status.UNSUPPORTED_ON_DEVICE}
    cache.close()


def evidence(status: Status) -> tuple[dict[str, str], ...]:
    return ({"name": "zeros", "evidence": "seen"},) if status is Status.EXPLOIT else ()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"devices": []}, "at least one device"),
        ({"devices": ["tpu"]}, "unknown device"),
        ({"devices": ["cuda:9"]}, "there is no CUDA device 9"),
        ({"executor": "slurm"}, "choose local or ray"),
        ({"devices": ["cpu"], "num_slots": 0}, "at least 1"),
    ],
)
def test_a_pool_that_cannot_be_is_refused(arguments: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        open_pool(**arguments)  # type: ignore[arg-type]
