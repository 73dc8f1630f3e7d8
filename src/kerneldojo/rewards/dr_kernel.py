"""Dr. Kernel's reward (arXiv 2602.05885): correct, fast, and with most of the time in kernels of one's own.

The third term is the answer to *lazy optimisation*. A policy paid for correctness and speed alone learns to replace a
trivial operation and to leave the rest to the library (about 1.0 times as fast, safely right). Paying for the share of
the device time that its own kernels take (the profiling ratio PR, here `coverage`) makes the larger bite worth trying.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import Field

from kerneldojo.rewards.outcome import Outcome, judged
from kerneldojo.rewards.reward import Reward, masked
from kerneldojo.schema import Evaluation, Settings


class DrKernelConfig(Settings):
    """Settings of Dr. Kernel's reward; the defaults are the paper's."""

    type: Literal["dr_kernel"] = "dr_kernel"
    coverage: bool = True
    """True: Eq. 8, with the profiling ratio. False: Eq. 1, without."""
    speedup_cap: float = Field(default=3.0, gt=0)
    """Speedups above this are paid as this (Eq. 1: min(T_ref / T_kernel, 3))."""
    scale: float = Field(default=1.0, gt=0)
    """Factor on the whole reward. The released code weighs each term with 0.5 (so at most 2.5); the paper with 1."""


PAPER = DrKernelConfig()
"""The paper's settings."""


def dr_kernel(
    evaluation: Evaluation,
    config: DrKernelConfig = PAPER,
    read: Callable[[Evaluation], Outcome | None] = judged,
) -> Reward:
    """R = C + C · min(T_ref / T_kernel, 3) (Eq. 1), and + C · PR (Eq. 7 and 8) with `config.coverage`.

    Unit: none; range 0 to (2 + speedup_cap) · scale. A correct answer whose time or coverage is unknown (device `cpu`,
    an inconsistent profile) is paid without that term: what was not seen is not paid for.
    """
    outcome = read(evaluation)
    if outcome is None:
        return masked(evaluation)
    if not outcome.correct:
        return Reward(value=0.0, parts={"correct": 0.0})
    parts = {"correct": config.scale}
    if outcome.speedup is not None:
        parts["speedup"] = config.scale * min(outcome.speedup, config.speedup_cap)
    if config.coverage and outcome.coverage is not None:
        parts["coverage"] = config.scale * outcome.coverage
    return Reward(value=sum(parts.values()), parts=parts)
