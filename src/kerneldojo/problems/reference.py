"""What the audit asks of whoever runs the reference.

A problem may come from a stranger, so its code never runs in the audit's process. The judge implements `Reference` by
driving its sandboxed runner; tests implement it in-process for our own katas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch

Variant = Literal["native", "float64", "nudged", "tf32"]
"""Arithmetic of a run: as written, no TF32 allowed; all in float64 (`precision.float64_oracle`); the same with all
inputs and weights larger by `budget.NUDGE`; products with operands cut to TF32 (`precision.tf32_emulation`, also on a
GPU, whose library rounds more finely than an honest kernel may)."""


class ReferenceFailed(Exception):
    """The problem's own code failed, or answered with something other than tensors; one line says how.

    Args:
        message: that line.
        lacks: what it had too little of, where that is why it failed.
    """

    def __init__(self, message: str, lacks: Literal["", "memory", "time"] = "") -> None:
        super().__init__(message)
        self.lacks: Literal["", "memory", "time"] = lacks


@dataclass(frozen=True)
class Outcome:
    """What one construction and one forward of the reference gave."""

    inputs: Sequence[torch.Tensor]
    """All tensors among the inputs, depth first, in native dtype, as they were before the call."""
    outputs: Mapping[Variant, Sequence[torch.Tensor]]
    """All tensors among the outputs, depth first, for each variant that was asked for."""
    buffers: Mapping[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    """Buffers that the native call changed, with their new values."""
    mutates_inputs: bool = False
    """Whether the native call wrote into its inputs."""
    state_bytes: int = 0
    """Bytes of parameters and buffers; the audit re-initialises weights only where there are some."""
    peak_bytes: int = 0
    """Most bytes that the native call needed at one time beside inputs and state (`footprint.Footprint`)."""
    used_bytes: int = 0
    """Most bytes of its device's memory that the reference has had at one time so far, in whatever variant, with what
    libraries take for themselves; 0 where nobody counts them."""
    reduction_length: int = 1
    """Most terms that the native call summed for one element (`footprint.Footprint`)."""


class Reference(Protocol):
    """Runs a problem's `Model`; each call is a fresh draw of inputs and, but where it says so, a fresh instance.

    Equal arguments must give equal inputs and weights: `get_inputs` and `get_init_inputs` run right after the global
    generators were seeded with `input_seed` and `init_seed`, and constants of `nn.init` are replaced by draws under
    the latter, as for a contestant.
    """

    def run(
        self,
        *,
        input_seed: int,
        init_seed: int,
        call_seed: int = 0,
        distribution: str = "own",
        variants: Sequence[Variant] = ("native",),
        training: bool = True,
        anew: bool = True,
    ) -> Outcome:
        """Draw inputs, construct the module and call it once in each variant, each time from the same state.

        Args:
            input_seed: seed of `get_inputs`, and of the distribution's change (`distributions.transform`).
            init_seed: seed of `get_init_inputs` and the constructor.
            call_seed: seed of the global generators right before the forward, which must not matter.
            distribution: one of `distributions.NAMES`.
            variants: arithmetics to run in.
            training: the module's mode; True is as constructed.
            anew: False calls the instance of the last run once more, whatever that has left in it; its state's bytes
                are not told.

        Raises:
            ReferenceFailed: the problem's code raised, ended or hung, in any of these steps.
        """
        ...

    def needed_bytes(self, *, input_seed: int, init_seed: int, training: bool) -> Sequence[int]:
        """Return `influence.needed_bytes` for each of `Outcome.inputs`, own distribution and native arithmetic.

        Raises:
            ReferenceFailed: as for `run`.
        """
        ...
