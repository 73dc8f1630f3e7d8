"""Inputs of timed calls: many sets in one shared region, with content that nobody has seen before.

Every call of a window has a set of its own, so that every call meets a cold cache, and before every window the judge
writes all sets anew. Drawing them from the problem each time would cost more than the timing, so fresh content is made
from a few drawn sets: a tensor that may be shuffled is rotated by a secret distance, which keeps its distribution but
moves every element; the others (indices, masks, anything with structure) are taken from a secretly chosen set.

Last of all a stamp exchanges words and blocks at secret places of the shufflable tensors (`stamps`). It takes
microseconds and makes whatever was computed from the content before worthless.

Whoever is timed can write to this memory, too, and the reference meets it afterwards: an input that makes the answer
easy would make the two agree. So the judge remembers what it wrote, can say it again (`written`), and tells whether it
is still there (`differs`).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kerneldojo.devices.cuda.memory import SharedRegion, span
from kerneldojo.devices.cuda.rotation import Rotation, rotate, rotate_all
from kerneldojo.devices.cuda.stamps import Extent, Stamp, Swap, draw_exchange, draw_swap
from kerneldojo.problems.distributions import is_structural
from kerneldojo.problems.pieces import pieces

ALIGNMENT = 512
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}


@dataclass(frozen=True)
class Layout:
    """How a tensor lies: sizes and strides in elements."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        """From its first byte to its last."""
        return span(0, self.shape, self.stride, self.dtype.itemsize, 1 << 62)

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Layout:
        """The layout of a tensor."""
        return cls(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)


def set_bytes(layouts: Sequence[Layout]) -> int:
    """Bytes of one set of tensors with these layouts, each aligned."""
    return sum(-(-layout.num_bytes // ALIGNMENT) * ALIGNMENT for layout in layouts)


def num_sets(layouts: Sequence[Layout], region_bytes: int, longest: int) -> int:
    """How many sets a region holds, at most `longest`."""
    return max(0, min(longest, region_bytes // max(1, set_bytes(layouts))))


class InputSets:
    """The sets in `region`. The judge's; contestants only map the region.

    Args:
        region: shared memory.
        bases: drawn sets, each a list of tensors on the device with equal layouts; at least one.
        shufflable: for each tensor of a set, whether its elements may be moved about.
        count: number of sets.
    """

    def __init__(
        self, region: SharedRegion, bases: Sequence[Sequence[torch.Tensor]], shufflable: Sequence[bool], count: int
    ) -> None:
        self.layouts = [Layout.of(tensor) for tensor in bases[0]]
        self.count = count
        if num_sets(self.layouts, region.size, count) < count:
            raise ValueError(f"{count} sets do not fit into {region.size} bytes")
        self._bases = [[_storage(tensor) for tensor in base] for base in bases]
        self._shufflable = list(shufflable)
        self._region = region
        self.num_fresh = 0
        """Sets that were written last, the first ones."""
        self._offsets: list[list[int]] = []
        position = 0
        for _ in range(count):
            self._offsets.append([])
            for layout in self.layouts:
                self._offsets[-1].append(position)
                position += -(-layout.num_bytes // ALIGNMENT) * ALIGNMENT
        self._targets = [
            [
                region.tensor(offset, values.shape, (1,), values.dtype)
                for offset, values in zip(offsets, self._bases[0], strict=True)
            ]
            for offsets in self._offsets
        ]
        self._set_bytes = set_bytes(self.layouts)
        self._words = region.tensor(0, (region.size // 4,), (1,), torch.int32)
        self._content: list[tuple[int, list[int]]] = [(0, [])] * count
        """Of each set: which base it was made from, and how far each of its tensors was rotated."""
        self._swap: Swap | None = None
        self._stamp: Stamp | None = None
        """What was drawn since something was written last."""

    def offset(self, index: int, tensor: int) -> int:
        """Bytes from the beginning of the region to a tensor of a set."""
        return self._offsets[index][tensor]

    def forget_bases(self) -> None:
        """Give the drawn sets' memory back: there is nothing to make content from any more."""
        self._bases.clear()

    def refresh(self, length: int) -> None:
        """Write new content into the first `length` sets. Asynchronous."""
        self._stamp, self.num_fresh = None, length
        for index in range(length):
            number = secrets.randbelow(len(self._bases))
            pairs = zip(self._bases[number], self._shufflable, strict=True)
            distances = [_distance(len(values), shuffled=shuffled) for values, shuffled in pairs]
            self._content[index] = number, distances
        for tensor in range(len(self.layouts)):
            rotate_all(
                [
                    Rotation(self._targets[index][tensor], self._bases[base][tensor], far[tensor])
                    for index, (base, far) in enumerate(self._content[:length])
                ]
            )

    def written(self, index: int) -> list[torch.Tensor]:
        """What was written into a set of this round, stamp included, as tensors of their own."""
        number, distances = self._content[index]
        found: list[torch.Tensor] = []
        for tensor, (values, layout) in enumerate(zip(self._bases[number], self.layouts, strict=True)):
            flat = torch.empty_like(values)
            rotate(flat, values, distances[tensor])
            if self._stamp is not None:
                words = flat.view(torch.uint8)[: layout.num_bytes // 4 * 4].view(torch.int32)
                self._stamp.apply(words, index, self._offsets[0][tensor])
            found.append(flat.as_strided(layout.shape, layout.stride))
        return found

    def differs(self, index: int) -> torch.Tensor:
        """Whether a set has other content than `written` says, as one truth value on its device. Asynchronous.

        No copies are made: what the stamp exchanged is exchanged back meanwhile.
        """
        number, distances = self._content[index]
        if self._stamp is not None:
            self._stamp.toggle(index)
        found = torch.zeros((), dtype=torch.bool, device=self._words.device)
        for target, values, distance in zip(self._targets[index], self._bases[number], distances, strict=True):
            kept = len(values) - distance
            for now, then in ((target[distance:], values[:kept]), (target[:distance], values[kept:])):
                for piece, right in pieces(_bits(now), _bits(then)):
                    found |= (piece != right).any()
        if self._stamp is not None:
            self._stamp.toggle(index)
        return found

    def draw_stamp(self, length: int) -> Stamp:
        """What changes the first `length` sets a last time, drawn for the content that was written last."""
        places, extents = self._stampable(length), self._extents()
        nowhere = np.zeros(0, dtype=np.int64)
        pairs = draw_exchange(places) if places else (nowhere, nowhere)
        self._swap = draw_swap(extents, self._swap)
        self._stamp = Stamp(self._words, self._set_bytes, extents, pairs, self._swap)
        return self._stamp

    def _extents(self) -> list[Extent]:
        """Inputs of which blocks may change places."""
        found = [
            Extent(offset, layout.num_bytes, layout.dtype.itemsize)
            for offset, layout, shuffled in zip(self._offsets[0], self.layouts, self._shufflable, strict=True)
            if shuffled
        ]
        return [extent for extent in found if extent.num_bytes >= 2 * extent.unit and extent.item_bytes <= 16]

    def _stampable(self, length: int) -> list[tuple[int, int]]:
        """Ranges of 4-byte words that may be moved about; at most 64 of them, secretly chosen."""
        places = [
            (self._offsets[index][tensor] // 4, layout.num_bytes // 4)
            for index in range(length)
            for tensor, layout in enumerate(self.layouts)
            if self._shufflable[tensor] and layout.num_bytes >= 8 and layout.dtype.itemsize <= 4
        ]
        secrets.SystemRandom().shuffle(places)
        return places[:64]


def _distance(count: int, *, shuffled: bool) -> int:
    """By how many of `count` elements to rotate them: secret."""
    return secrets.randbelow(count) if shuffled and count > 1 else 0


def _storage(tensor: torch.Tensor) -> torch.Tensor:
    """The memory from a tensor's first element to its last, flat."""
    layout = Layout.of(tensor)
    return tensor.as_strided((layout.num_bytes // layout.dtype.itemsize,), (1,))


def _bits(flat: torch.Tensor) -> torch.Tensor:
    """Elements as integers: a number that is none does not equal itself."""
    return flat.view(_INTEGERS[flat.element_size()]) if len(flat) else flat


def may_shuffle(tensor: torch.Tensor) -> bool:
    """Whether moving elements about leaves an input what it is: no labels, no zeros that mean something, no order."""
    if is_structural(tensor) or tensor.dim() == 0:
        return False
    if int((tensor == 0).sum()) > 1e-3 * tensor.numel():
        return False
    square = tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2]
    if square and torch.equal(tensor, tensor.transpose(-1, -2)):
        return False
    if tensor.shape[-1] <= 2:
        return True
    rises = tensor[..., 1:] >= tensor[..., :-1]
    return 0.05 < int(rises.sum()) / rises.numel() < 0.95
