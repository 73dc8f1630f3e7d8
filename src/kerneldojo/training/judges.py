"""Who judges in training: devices of this machine, or a service elsewhere.

Of a machine with several GPUs the ranks train on the first ones, `cuda:0` and on. Judges may have the same ones, and
then wait until the policy rests, or others (`judge.devices`), and then work while it does:

    dojo train rl recipes/h200-rl.toml --set play.device=cuda --set judge.devices=others --set staleness=1
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from kerneldojo.devices import DeviceError, every, num_cuda_devices, parse
from kerneldojo.devices.cores import all_but
from kerneldojo.pool import DeviceState, Executor
from kerneldojo.schema import Evaluation, Job
from kerneldojo.training.config import RLConfig
from kerneldojo.training.parallel import Ranks
from kerneldojo.training.settings import ConfigError

SPARED_CORES = 2
"""Cores for each rank that works while others judge: one for what launches kernels, one for all of its other threads.
Both may be threads of one core, so no odd number is better."""
CORES_A_PAIR = 8
"""Of so many cores two are left to ranks at most: a laptop's few are worth more to judges than to a small policy."""
START_SECONDS = 2.0
"""How long a service may take to answer when a run starts."""


class NoJudge:
    """The executor of a rank that judges nothing, since the first one does for all."""

    num_slots = 0

    def submit(self, job: Job) -> Future[Evaluation]:
        """Raises RuntimeError, always."""
        raise RuntimeError(f"only the first rank judges (asked for {job.problem.name})")

    def devices(self) -> Sequence[DeviceState]:
        """None."""
        return ()

    def close(self, *, drain: bool = True, patience: float | None = None) -> None:
        """Nothing to close."""


def open_executor(config: RLConfig, ranks: Ranks | None = None) -> Executor:
    """The executor that a run's configuration asks for; to be closed. Other ranks than the first need none.

    `ranks`: who trains, and where; None for one process whose policy is on no GPU.

    Raises:
        ClientError: the service is not there.
        ConfigError: there is no such device, or no such address.
        RuntimeError: the devices cannot be used.
    """
    if ranks is not None and not ranks.is_first:
        return NoJudge()
    _check_device(config)
    if config.judge.service is not None:
        from kerneldojo.client import Client, ClientExecutor
        from kerneldojo.client.attempts import Retries

        service = config.judge.service
        try:
            client = Client(service, retries=Retries(give_up_seconds=START_SECONDS))
        except ValueError as error:
            raise ConfigError(f"judge.service: {error}") from error
        # Later a service may go away and come back; one that is not there at the start is a mistake to be told at once.
        with client:
            client.overview()
        return ClientExecutor(service, retries=Retries(give_up_seconds=config.judge.patience_s))
    from kerneldojo.pool import PoolConfig, open_pool

    chosen = judging_devices(config, ranks)
    folder = config.judge.cache or _own_cache(config, chosen)
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        key = "output" if config.judge.cache is None else "judge.cache"
        raise ConfigError(f"{key}: cannot write {folder}: {error.strerror}") from error
    settings = PoolConfig(cache_folder=folder, cores=cores_of_judges(config, ranks, chosen))
    return open_pool("local", chosen, num_slots=config.judge.slots, config=settings)


def judging_devices(config: RLConfig, ranks: Ranks | None = None) -> list[str]:
    """Names of this machine's devices that judge, as `JudgeConfig.devices` says.

    Raises:
        ConfigError: one is not there, or would have nothing to judge.
    """
    told, asked = config.judge.devices, config.play.device
    policy = gpus_of(ranks) if ranks is not None else frozenset[str]()
    others = [name for name in every("cuda") if name != "cuda" and name not in policy]
    if told is None:
        must_choose = bool(config.staleness and policy) and asked in ("auto", "cuda")
        return others if must_choose and others else [asked]
    if isinstance(told, tuple):
        return _named(told, asked)
    wanted = len(others) if told == "others" else told
    if not 0 < wanted <= len(others):
        shown, there = f"{told!r} is asked for" if told == "others" else f"{told} are asked for", num_cuda_devices()
        raise ConfigError(
            f"judge.devices: {shown}, and of this machine's {there} GPUs the policy leaves {len(others)} free"
        )
    return _named(others[:wanted], asked)


def _named(names: Sequence[str], asked: str) -> list[str]:
    """These devices, each once, if all are there and serve jobs that ask for `asked`."""
    from kerneldojo.pool.placement import eligible, local_device

    try:
        found = {device.name: device for name in names for device in map(local_device, every(name))}
    except DeviceError as error:
        raise ConfigError(f"judge.devices: {error}") from error
    devices = list(found.values())
    try:
        serving = eligible(asked, devices)
    except ValueError:
        serving = frozenset[str]()
    idle = [device.name for device in devices if not device.is_among(serving)]
    if idle:
        raise ConfigError(
            f"judge.devices: {idle[0]} would have nothing to judge, for play.device is {asked!r} (`cuda` is any GPU)"
        )
    return list(found)


def gpus_of(ranks: Ranks) -> frozenset[str]:
    """Names of the GPUs that the policy trains on: rank N of several is on `cuda:N`."""
    if ranks.device.type != "cuda":
        return frozenset()
    each = range(ranks.count) if ranks.count > 1 else (ranks.device.index or 0,)
    return frozenset(f"cuda:{index}" for index in each)


def cores_of_judges(config: RLConfig, ranks: Ranks | None, judging: Sequence[str]) -> tuple[int, ...]:
    """This machine's cores but for those that `JudgeConfig.spared_cores` leaves to the ranks; empty for all.

    Raises:
        ConfigError: the judges would have none.
    """
    own, num_ranks = os.sched_getaffinity(0), 1 if ranks is None else ranks.count
    if config.judge.spared_cores is not None:
        num_spared = config.judge.spared_cores * num_ranks
    elif _works_beside(config, ranks, judging):
        num_spared = min(SPARED_CORES * num_ranks, len(own) // CORES_A_PAIR * 2)
    else:
        num_spared = 0
    if not num_spared:
        return ()
    left = all_but(num_spared, own)
    if not left:
        told = f"{config.judge.spared_cores} for each of {num_ranks} ranks"
        raise ConfigError(
            f"judge.spared_cores: {told} are all of this process's {len(own)} cores: none is left to judge"
        )
    return left


def _works_beside(config: RLConfig, ranks: Ranks | None, judging: Sequence[str]) -> bool:
    """Whether the policy is at work while its answers are judged; see `Player.write`."""
    if config.staleness:
        return True
    if config.judge.after_writing or (ranks is not None and ranks.count > 1):
        return False
    policy = frozenset[str]() if ranks is None else gpus_of(ranks)
    is_shared = not policy.isdisjoint(one for name in judging for one in every(name))
    return config.judge.after_writing is False or not is_shared


def _own_cache(config: RLConfig, judging: Sequence[str]) -> Path | None:
    """A run's own memory of verdicts that no clock has part in: they differ in what the judge drew secretly and the
    feedback tells of it, so that a run which is played again from a checkpoint would see other prompts without."""
    return None if any(name.startswith(("auto", "cuda")) for name in judging) else config.output / "verdicts"


def _check_device(config: RLConfig) -> None:
    """Refuse a device that nobody has: GPUs of a service elsewhere are its own affair."""
    name = config.play.device
    if config.judge.service is not None and name.partition(":")[0] in ("auto", "cuda"):
        return
    try:
        parse(name)
    except DeviceError as error:
        raise ConfigError(f"play.device: {error}") from error


def judges_after_writing(config: RLConfig, ranks: Ranks, executor: Executor) -> bool:
    """Whether verdicts wait until the policy is at rest (`JudgeConfig.after_writing`).

    Raises:
        ConfigError: it would have to wait, and is told not to.
    """
    if config.judge.after_writing is not None or ranks.device.type != "cuda" or config.judge.service is not None:
        return bool(config.judge.after_writing)  # A service's `cuda:0` may be any machine's.
    judging = ranks.from_first([state.name for state in executor.devices()])
    shared = sorted(gpus_of(ranks).intersection(judging))
    if shared and config.staleness:
        raise ConfigError(
            f"staleness = 1: policy and judge share {shared[0]}, and would disturb each other: give the judge another "
            "device (`judge.devices`, `judge.service`) or the policy (`device`)"
        )
    return bool(shared)
