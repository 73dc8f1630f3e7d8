"""Advantages by name: a configuration names its estimator. To add one: a file of its own, and a line twice here."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from kerneldojo.algorithms.grpo import GRPOConfig, grpo
from kerneldojo.algorithms.kevin import KevinConfig, kevin
from kerneldojo.algorithms.rloo import RLOOConfig, rloo
from kerneldojo.algorithms.trloo import TRLOOConfig, trloo
from kerneldojo.algorithms.turns import Turns

AdvantageConfig = Annotated[TRLOOConfig | GRPOConfig | RLOOConfig | KevinConfig, Field(discriminator="type")]
"""Any estimator's configuration; `type` tells which."""


def advantages(returns: Tensor, turns: Turns, config: AdvantageConfig) -> Tensor:
    """The advantage of each turn: returns (n,) return-to-go in, (n,) out; 0 where the turn is not valid."""
    match config:
        case TRLOOConfig():
            return trloo(returns, turns, config)
        case GRPOConfig():
            return grpo(returns, turns, config)
        case RLOOConfig():
            return rloo(returns, turns, config)
        case KevinConfig():
            return kevin(returns, turns, config)
