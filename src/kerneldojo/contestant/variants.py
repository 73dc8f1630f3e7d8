"""A module in several precisions: its copies, and those of what it is called with.

Buffers are each copy's own, since a call updates them and those of other precisions evolve apart. So are parameters,
but where they take much memory: then a precision has them once, and a call that changes them is a failure.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from kerneldojo.contestant import tree
from kerneldojo.problems.budget import CHUNK, NUDGE
from kerneldojo.problems.pieces import num_bytes

IN_DOUBLE = ("float64", "nudged")
MOST_COPIED_BYTES = 256 << 20
"""A module whose parameters take more shares them with its copies of the same precision."""


def instance_in(variant: str, instance: nn.Module) -> nn.Module:
    """A copy of a module, for a run in that variant; see `SharedParameters` where it is large."""
    if variant not in IN_DOUBLE:
        return copy.deepcopy(instance, {id(parameter): parameter for parameter in _shared(instance)})
    doubles: dict[int, Any] = {
        id(parameter): nn.Parameter(parameter.detach().double(), parameter.requires_grad)
        for parameter in instance.parameters()
        if type(parameter) is nn.Parameter and parameter.is_floating_point()
    }
    clone = copy.deepcopy(instance, doubles).double()  # Parameters are not copied first, which would take a third more.
    if variant == "nudged":
        _nudge(clone.parameters())
    return clone


class SharedParameters:
    """The parameters that a module shares with its copies, and what they were when this was made.

    Args:
        instance: the module; one that is small shares none.
    """

    def __init__(self, instance: nn.Module) -> None:
        self._parameters = _shared(instance)
        self._sums = self._summed()

    def check(self) -> None:
        """See that no call has changed them, under torch's eyes or behind its back.

        Raises:
            RuntimeError: one has.
        """
        if self._sums != self._summed():
            raise RuntimeError(f"forward changes its parameters, which take more than {MOST_COPIED_BYTES >> 20} MiB")

    def _summed(self) -> list[int]:
        if not self._parameters:
            return []
        return torch.stack([_sum_of_words(parameter.detach()) for parameter in self._parameters]).tolist()


def _shared(instance: nn.Module) -> list[nn.Parameter]:
    parameters = list(instance.parameters())
    return parameters if num_bytes(parameters) > MOST_COPIED_BYTES else []


def _sum_of_words(tensor: torch.Tensor) -> torch.Tensor:
    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    whole = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    flat = whole.reshape(-1).view(words[whole.element_size()])
    # A part at a time: torch makes a copy in the type of the sum first.
    return torch.stack([part.sum(dtype=torch.int64) for part in flat.split(CHUNK)]).sum()


def arguments_in(variant: str, arguments: Any) -> Any:
    """Copies of a call's arguments, for a run in that variant."""
    own = clone_arguments(arguments, double=variant in IN_DOUBLE)
    if variant == "nudged":
        _nudge(tree.tensors(own))
    return own


def _nudge(tensors: Iterable[torch.Tensor]) -> None:
    for tensor in tensors:
        if tensor.is_floating_point():
            tensor.detach().mul_(1.0 + NUDGE)


def clone_arguments(value: Any, *, double: bool) -> Any:
    """Copy every tensor, strides kept; in float64 where `double` and the tensor is of floating point."""
    if isinstance(value, torch.Tensor):
        dtype = torch.float64 if double and value.is_floating_point() else value.dtype
        clone = torch.empty_strided(value.shape, value.stride(), dtype=dtype, device=value.device)
        return clone.copy_(value)
    if isinstance(value, dict):
        return {key: clone_arguments(item, double=double) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(clone_arguments(item, double=double) for item in value)
    return value
