"""Rewards by name: a configuration names its type, and `reward` applies the function that it names.

    config = parse({"type": "dr_kernel", "coverage": False})
    reward(evaluation, config).value

To add a reward, write one file with a configuration (a `type` of its own, vetted defaults) and a function of an
evaluation, then add a line to `RewardConfig` and one to `reward`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from kerneldojo.rewards.dr_kernel import DrKernelConfig, dr_kernel
from kerneldojo.rewards.kevin import KevinConfig, kevin
from kerneldojo.rewards.naive import NaiveConfig, naive_for_experiments_only
from kerneldojo.rewards.reward import Reward
from kerneldojo.rewards.tritonrl import TritonRLConfig, tritonrl
from kerneldojo.schema import Evaluation

RewardConfig = Annotated[DrKernelConfig | KevinConfig | TritonRLConfig | NaiveConfig, Field(discriminator="type")]
"""Any reward's configuration; `type` tells which."""

_ADAPTER: TypeAdapter[DrKernelConfig | KevinConfig | TritonRLConfig | NaiveConfig] = TypeAdapter(RewardConfig)


def parse(settings: str | Mapping[str, Any]) -> RewardConfig:
    """A configuration from a table (`{"type": "kevin", "correct": 0.3}`) or from a bare name with its defaults.

    Raises `pydantic.ValidationError`, naming the key, for an unknown name, an unknown setting or a bad value.
    """
    return _ADAPTER.validate_python({"type": settings} if isinstance(settings, str) else dict(settings))


def reward(evaluation: Evaluation, config: RewardConfig) -> Reward:
    """What `evaluation` earns under `config`. Pure: the same evaluation always earns the same."""
    match config:
        case DrKernelConfig():
            return dr_kernel(evaluation, config)
        case KevinConfig():
            return kevin(evaluation, config)
        case TritonRLConfig():
            return tritonrl(evaluation, config)
        case NaiveConfig():
            return naive_for_experiments_only(evaluation, config)
