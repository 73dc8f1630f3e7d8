"""The device as hosted code sees it: where its tensors live, and what is recorded while it runs.

Without a GPU it is emulated (`host_platform`); `kerneldojo.devices.cuda.platform` is the real thing. Which of them a
process has, its fork server's flavour says (`flavours`).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import nn

from kerneldojo.contestant.arena import Arena, Packer, Slot


class Seen(Protocol):
    """What was seen during one call."""

    work: list[dict[str, Any]]
    specializations: list[dict[str, Any]]
    outputs: Any
    """What the call returned; whoever called sets it."""


class Platform(Protocol):
    """What the runner needs from a device."""

    @property
    def arena(self) -> Arena:
        """Memory shared with the judge."""
        ...

    @property
    def used_bytes(self) -> int:
        """Most bytes of the device's memory that hosted code has had at one time, since it was settled last or ever; 0
        where nobody counts them."""
        ...

    def furnish(self, fds: list[int]) -> None:
        """Take the descriptors of the memory shared with the judge, unless they came with the process; again only once
        it was let go (`settle`)."""
        ...

    def load_driver(self) -> None:
        """Do what `open` does first and no other process has to wait for."""
        ...

    def open(self, *, is_lean: bool = False) -> None:
        """Make the device usable, if it is not yet: on CUDA a context, which is dear, and shared memory in it.

        Args:
            is_lean: whether it takes less of the device's memory, for code that calls no function by pointer, nor
                itself: any that a compiler of tensor programs makes.
        """
        ...

    def renew(self) -> None:
        """Another command comes: what was placed for the last one has been read."""
        ...

    def settle(self) -> bool:
        """Be as far as possible as a fresh process would: nothing of the hosted code's is alive.

        Returns:
            Whether the shared memory was let go, so that other memory may come (`furnish`).
        """
        ...

    def input_view(self, slot: Slot) -> torch.Tensor:
        """A tensor over shared memory, as an input to hosted code."""
        ...

    def look(self, outputs: Any) -> None:
        """See what a call has just returned, as whoever uses it next would; what `place` makes of it has that."""
        ...

    def place(self, tensor: torch.Tensor, packer: Packer) -> Slot:
        """Make an output visible to the judge."""
        ...

    def is_ours(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is on this device."""
        ...

    def is_input(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor shares memory with an input of the last call."""
        ...

    def loading(self) -> AbstractContextManager[Any]:
        """Surroundings for importing a source."""
        ...

    def constructing(self) -> AbstractContextManager[Any]:
        """Surroundings for a constructor."""
        ...

    def adopt(self, instance: nn.Module) -> nn.Module:
        """Move an instance to this device."""
        ...

    def called(self, instance: nn.Module, arguments: Any, *, silenced: bool) -> AbstractContextManager[Seen]:
        """Surroundings for one call of `instance` with `arguments`, which is made by whoever enters them."""
        ...

    def arm(self) -> bool:
        """Be ready for calls that are silenced; whether that can be done here."""
        ...

    def tf32(self) -> AbstractContextManager[Any]:
        """Surroundings in which float32 products use TF32, for the reference's error budget."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has done everything."""
        ...
