"""Large tensors looked at piece by piece, so that temporaries stay small beside them.

An output may fill a good part of a GPU; a copy of it in float64 would not fit beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

PIECE = 1 << 25
"""Elements looked at in one go."""


def pieces(*tensors: torch.Tensor, size: int = PIECE) -> Iterator[list[torch.Tensor]]:
    """The same elements of each, flat and as they are, some at a time; all have equally many."""
    flat = [tensor.reshape(-1) for tensor in tensors]
    for start in range(0, flat[0].numel(), size):
        yield [one[start : start + size] for one in flat]


def sum_of_squares(tensor: torch.Tensor) -> float:
    """In float64."""
    return sum(float(piece.double().square().sum()) for (piece,) in pieces(tensor))


def num_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """What their elements take, all together."""
    return sum(tensor.nbytes for tensor in tensors)


def memory_order(tensor: torch.Tensor) -> list[int]:
    """Its dimensions as they lie in memory, that with the largest steps first: what `permute` makes contiguous."""
    return sorted(range(tensor.dim()), key=lambda dim: -tensor.stride(dim))
