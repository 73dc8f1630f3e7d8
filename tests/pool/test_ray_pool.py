"""A pool over several machines: a real Ray cluster of several nodes on this one, one of them lost on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Generator
from pathlib import Path

import pytest
from pooled import MODEL, broken, command, sleeper, wait_until

from kerneldojo.pool import PoolConfig
from kerneldojo.schema import Status

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")

from kerneldojo.pool import RayPool  # noqa: E402 - without Ray it says so, where these are to be left out


@pytest.fixture(scope="module")
def cluster() -> Generator[object]:
    os.environ["RAY_TEST_MARK"] = f"mark-{uuid.uuid4()}"  # By which its workers are told from others of this machine.
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    yield cluster
    ray.shutdown()
    cluster.shutdown()
    del os.environ["RAY_TEST_MARK"]


@pytest.mark.slow
def test_a_lost_node_costs_no_job_its_verdict(cluster: cluster_utils.Cluster) -> None:
    """A worker a machine is most of what this costs: so the one that joins late is the one that survives."""
    first = cluster.add_node(num_cpus=1)
    pool = RayPool(cluster.address, [MODEL], config=PoolConfig(backoff_seconds=0.1, check_seconds=1.0))
    wait_until(lambda: len(pool.devices()) == 1 and pool.devices()[0].is_healthy)
    names = {state.name for state in pool.devices()}
    cluster.add_node(num_cpus=1)  # One that joins late takes its part.
    wait_until(lambda: len(pool.devices()) == 2 and all(state.is_healthy for state in pool.devices()))
    futures = [pool.submit(sleeper(2.0, f"node {i}")) for i in range(4)]
    wait_until(lambda: all(state.running for state in pool.devices()))
    cluster.remove_node(first, allow_graceful=False)
    wait_until(lambda: sum(state.is_healthy for state in pool.devices()) == 1)
    verdicts = [future.result(180) for future in futures]
    assert len({verdict.status for verdict in verdicts}) == 1
    assert verdicts[0].status is not Status.INFRASTRUCTURE_ERROR
    assert not any("lost" in verdict.message for verdict in verdicts)
    assert not {state.name for state in pool.devices() if state.is_healthy} & names
    assert pool.submit(broken("on a cluster")).result(120).status is Status.COMPILE_ERROR
    _one_loss_convicts_nobody(pool)
    _closing_with_patience_ends_what_runs_longer(pool)


@pytest.mark.slow
def test_machines_that_are_there_at_the_start_are_taken_up_at_once(
    cluster: cluster_utils.Cluster, tmp_path: Path
) -> None:
    """Each by a thread of its own, while the service is imported: Ray's first work in a process is not for two."""
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    command = [sys.executable, "-m", "kerneldojo.cli", "serve", "--executor", "ray", "--device", MODEL, "--port", "0"]
    service = subprocess.Popen(
        [*command, "--store", str(tmp_path / "store.db")],
        env={**os.environ, "RAY_ADDRESS": cluster.address},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert service.stderr is not None
        said: list[str] = []
        for line in service.stderr:
            said.append(line)
            if "serving on" in line:
                break
        service.terminate()
        said += service.stderr.readlines()
        assert service.wait(60) == 0
    finally:
        service.kill()
    assert any("serving on" in line for line in said) and "Traceback" not in "".join(said)
    for node in nodes:
        cluster.remove_node(node)


@pytest.mark.slow
def test_closing_does_not_wait_for_a_place_that_others_have(cluster: cluster_utils.Cluster) -> None:
    node = cluster.add_node(num_cpus=1, resources={"theirs": 1})
    ray.init(cluster.address, log_to_driver=False)
    assert ray.util.placement_group([{"CPU": 1, "theirs": 1}]).wait(60)
    pool = RayPool(devices=[MODEL])
    future = pool.submit(sleeper(300.0, "no place"))
    time.sleep(1.0)
    began = time.monotonic()
    pool.close(drain=False, patience=0.0)
    assert time.monotonic() - began < 20
    assert future.done()
    ray.shutdown()
    cluster.remove_node(node)


def _one_loss_convicts_nobody(pool: RayPool) -> None:
    """Its one lane takes the suspect again at once, before anybody has seen to another worker."""
    future = pool.submit(sleeper(4.0, "killed once"))
    wait_until(lambda: any(state.running for state in pool.devices() if state.is_healthy))
    time.sleep(2.0)
    struck = [pid for pid in (int(at.name) for at in Path("/proc").iterdir() if at.name.isdigit()) if _is_worker(pid)]
    assert struck
    for pid in struck:
        os.kill(pid, signal.SIGKILL)
    assert "lost" not in future.result(180).message


def _closing_with_patience_ends_what_runs_longer(pool: RayPool) -> None:
    futures = [pool.submit(sleeper(nap, "patience", timeout=600)) for nap in (300.0, 301.0)]
    wait_until(lambda: any(state.running for state in pool.devices()))
    began = time.monotonic()
    pool.close(drain=True, patience=1.0)
    assert time.monotonic() - began < 60
    assert [future.result(0).message for future in futures] == ["the pool was stopped"] * 2
    assert not any(_is_worker(int(at.name)) for at in Path("/proc").iterdir() if at.name.isdigit())


def _is_worker(pid: int) -> bool:
    return b"kerneldojo.pool.worker" in command(pid) and os.environ["RAY_TEST_MARK"].encode() in _environment(pid)


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
