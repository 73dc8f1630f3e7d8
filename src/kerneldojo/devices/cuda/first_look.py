"""The first look at an output: its last bytes, as the next operation on the current stream finds them.

Whoever uses a result launches that use right behind the call. Work on a stream that nobody has joined may not be done
then, and would be by the time that a judge has described the result and copies it. So some bytes are taken before
anything else is done, and stand in the judge's copy for what is there later. For an output that is computed in order
they are the same.
"""

from __future__ import annotations

from typing import Any

import torch

MOST_TENSORS = 8
MOST_ELEMENTS = 4096
"""So few that taking them is the launch of one small kernel."""


class FirstLook:
    """What was found at the ends of a call's outputs."""

    def __init__(self) -> None:
        self._found: list[tuple[torch.Tensor, torch.Tensor]] = []

    def take(self, outputs: Any) -> None:
        """Take the end of each output that is a plain tensor without holes; what was taken before is forgotten."""
        self._found = []
        several = outputs if type(outputs) in (tuple, list) else (outputs,)
        for tensor in several[:MOST_TENSORS]:
            if type(tensor) is torch.Tensor and tensor.layout == torch.strided and _has_end(tensor):
                self._found.append((tensor, _end(tensor).clone()))

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """What was found at the end of one of them; None if nobody looked."""
        for seen, found in self._found:
            if seen.data_ptr() == tensor.data_ptr() and seen.shape == tensor.shape and tensor.is_contiguous():
                return found
        return None

    def forget(self) -> None:
        """Let go of the outputs."""
        self._found = []


def stand_in(found: torch.Tensor, copy: torch.Tensor) -> None:
    """Let a copy of an output, which has no holes either, end as was found: asynchronously."""
    _end(copy).copy_(found)


def _has_end(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() and tensor.numel() > 0 and not tensor.is_meta


def _end(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(-1)[-MOST_ELEMENTS:]
