"""The first look at an output: some elements of it, as the next operation on the current stream finds them.

Whoever uses a result launches that use right behind the call. Work on a stream that nobody has joined may not be done
then, and would be by the time that a judge has described the result and copies it. So some elements are taken before
anything else is done, and stand in the judge's copy for what is there later. For an output that is computed in order
they are the same. They lie all over it, and where is drawn when the call is over: else nobody would have to join but
what writes these. Of an output that has holes all elements are taken, for it is copied in any case.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

MOST_TENSORS = 8
MOST_ELEMENTS = 4096
"""About so many, and less than twice: so few that taking them is the launch of one small kernel."""
MOST_DEPTH = 16
"""Of lists and dictionaries that outputs lie in."""


@dataclass(frozen=True)
class Glimpse:
    """What was found in an output."""

    start: int
    """The first place."""
    values: torch.Tensor


class FirstLook:
    """What was found in a call's outputs."""

    def __init__(self) -> None:
        self._found: list[tuple[torch.Tensor, Glimpse]] = []
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []

    def take(self, outputs: Any) -> None:
        """Look at each output that is a plain tensor; what was taken before is forgotten."""
        self.forget()
        for tensor in itertools.islice(_plain(outputs, 0), MOST_TENSORS):
            if has_no_holes(tensor):
                self._found.append((tensor, _glimpse(tensor, secrets.randbelow(_step(tensor)))))
            else:
                self._copies.append((tensor, tensor.contiguous()))

    def of(self, tensor: torch.Tensor) -> Glimpse | None:
        """What was found in one of them; None if nobody looked.

        Two outputs may be one memory, read as numbers of two kinds.
        """
        for seen, found in self._found:
            if seen.data_ptr() == tensor.data_ptr() and _lies(seen) == _lies(tensor):
                return found
        return None

    def without_holes(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of an output that has holes, or elements that share memory: as it was when it was looked at, if so."""
        for seen, copy in self._copies:
            if seen.data_ptr() == tensor.data_ptr() and _lies(seen) == _lies(tensor):
                return copy
        return tensor.contiguous()

    def forget(self) -> None:
        """Let go of the outputs."""
        self._found, self._copies = [], []


def stand_in(found: Glimpse, copy: torch.Tensor) -> None:
    """Let a copy of an output, which lies as it does, have what was found: asynchronously.

    It may be the output itself, and one that was made in inference mode is written to in no other.
    """
    with torch.inference_mode():
        _places(copy, found.start).copy_(found.values)


def _plain(value: Any, depth: int) -> Iterator[torch.Tensor]:
    """Those that can be looked at, depth first."""
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        if value.layout == torch.strided and not value.is_nested and not value.is_meta and value.numel():
            yield value
    elif depth < MOST_DEPTH and isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _plain(item, depth + 1)


def has_no_holes(tensor: torch.Tensor) -> bool:
    """Whether its elements fill its memory, each of them once, in whatever order."""
    return tensor.is_contiguous() or bool(torch.ops.aten.is_non_overlapping_and_dense(tensor))


def _lies(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.shape, tensor.stride()


def _glimpse(tensor: torch.Tensor, start: int) -> Glimpse:
    return Glimpse(start, _places(tensor, start).clone())


def _step(tensor: torch.Tensor) -> int:
    return max(1, tensor.numel() // MOST_ELEMENTS)


def _places(tensor: torch.Tensor, start: int) -> torch.Tensor:
    """Elements all over it, as they lie in memory."""
    step = _step(tensor)
    count = -(-(tensor.numel() - start) // step)
    return tensor.as_strided((count,), (step,), tensor.storage_offset() + start)
