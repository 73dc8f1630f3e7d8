"""Who judges in training: the devices of this machine, or a service elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from kerneldojo.devices import DeviceError, parse
from kerneldojo.pool import DeviceState, Executor
from kerneldojo.schema import Evaluation, Job
from kerneldojo.training.config import RLConfig
from kerneldojo.training.parallel import Ranks
from kerneldojo.training.settings import ConfigError

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

    def close(self, *, drain: bool = True) -> None:
        """Nothing to close."""


def open_executor(config: RLConfig, *, is_first: bool = True) -> Executor:
    """The executor that a run's configuration asks for; to be closed. Other ranks than the first need none.

    Raises:
        ClientError: the service is not there.
        ConfigError: there is no such device, or no such address.
        RuntimeError: the devices cannot be used.
    """
    if not is_first:
        return NoJudge()
    _check_device(config)
    if config.judge.service is not None:
        from kerneldojo.client import Client, ClientExecutor
        from kerneldojo.client.steps import Retries

        service = config.judge.service
        try:
            client = Client(service, retries=Retries(give_up_seconds=START_SECONDS))
        except ValueError as error:
            raise ConfigError(f"judge.service: {error}") from error
        # Later a service may go away and come back; one that is not there at the start is a mistake to be told at once.
        with client:
            client.overview()
        return ClientExecutor(service)
    from kerneldojo.pool import PoolConfig, open_pool

    settings = PoolConfig(cache_folder=config.judge.cache or _own_cache(config))
    return open_pool("local", [config.play.device], num_slots=config.judge.slots, config=settings)


def _own_cache(config: RLConfig) -> Path | None:
    """A run's own memory of verdicts that no clock has part in: they differ in what the judge drew secretly and the
    feedback tells of it, so that a run which is played again from a checkpoint would see other prompts without."""
    return None if config.play.device.startswith(("auto", "cuda")) else config.output / "verdicts"


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
    mine = {f"cuda:{index}" for index in range(ranks.count)} if ranks.count > 1 else {str(ranks.device)}
    judging = ranks.from_first([state.name for state in executor.devices()])
    shared = sorted(mine.intersection(judging))
    if shared and config.staleness:
        raise ConfigError(
            f"staleness = 1: policy and judge share {shared[0]}, and would disturb each other: give the judge another "
            "device (`device`, `play.device`, `judge.service`)"
        )
    return bool(shared)
