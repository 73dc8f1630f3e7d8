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


def slabs(tensor: torch.Tensor, size: int = PIECE) -> Iterator[torch.Tensor]:
    """Views of all of a tensor, of `size` elements at most, that keep its last dimensions as they are.

    The last dimension itself is cut only where it alone is longer than that. Tensors of one shape are cut alike.
    """
    if tensor.numel() <= size or not tensor.dim():
        yield tensor
        return
    fitting = size * tensor.shape[0] // tensor.numel()
    if fitting or tensor.dim() == 1:
        yield from tensor.split(max(1, fitting))
        return
    for one in tensor:
        yield from slabs(one, size)


def num_zeros(tensor: torch.Tensor) -> int:
    """How many of its elements are zero."""
    return int(torch.stack([(slab == 0).sum() for slab in slabs(tensor)]).sum())


def sum_of_squares(tensor: torch.Tensor) -> float:
    """In float64."""
    return sum(float(piece.double().square().sum()) for (piece,) in pieces(tensor))


def num_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """What their elements take, all together."""
    return sum(tensor.nbytes for tensor in tensors)


def memory_order(tensor: torch.Tensor) -> list[int]:
    """Its dimensions as they lie in memory, that with the largest steps first: what `permute` makes contiguous."""
    return sorted(range(tensor.dim()), key=lambda dim: -tensor.stride(dim))
