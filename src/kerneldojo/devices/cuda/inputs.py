"""Inputs of timed calls: many sets in one shared region, with content that nobody has seen before.

Every call of a window has a set of its own, so that every call meets a cold cache, and before every window the judge
writes all sets anew. Drawing them from the problem each time would cost more than the timing, so fresh content is made
from a few drawn sets: a tensor that may be shuffled is rotated by a secret distance, which keeps its distribution but
moves every element; the others (indices, masks, anything with structure) are taken from a secretly chosen set.

Last of all, when the caches are cold already, a stamp exchanges words at secret places of the shufflable tensors. It
takes microseconds and makes whatever was computed from the content before worthless.

Whoever is timed can write to this memory, too, and the reference meets it afterwards: an input that makes the answer
easy would make the two agree. So the judge remembers what it wrote, can say it again (`written`), and tells whether it
is still there (`differs`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from kerneldojo.devices.cuda.memory import SharedRegion, span
from kerneldojo.devices.cuda.rotation import Rotation, rotate, rotate_all
from kerneldojo.problems.distributions import is_structural
from kerneldojo.problems.pieces import pieces

Integers = npt.NDArray[np.int64]

ALIGNMENT = 512
NUM_STAMPS = 1024
"""Words that a stamp moves in all."""
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
        self._words = region.tensor(0, (region.size // 4,), (1,), torch.int32)
        self._pairs = torch.empty((2, 0), dtype=torch.int64, device=self._words.device)
        self._content: list[tuple[int, list[int]]] = [(0, [])] * count
        """Of each set: which base it was made from, and how far each of its tensors was rotated."""
        self._exchanged: tuple[Integers, Integers] | None = None
        """Words that the last stamp wrote, and where they came from, since something was written last."""

    def offset(self, index: int, tensor: int) -> int:
        """Bytes from the beginning of the region to a tensor of a set."""
        return self._offsets[index][tensor]

    def forget_bases(self) -> None:
        """Give the drawn sets' memory back: there is nothing to make content from any more."""
        self._bases.clear()

    def refresh(self, length: int) -> None:
        """Write new content into the first `length` sets. Asynchronous."""
        self._exchanged, self.num_fresh = None, length
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
            if self._exchanged is not None:
                first, length = self._offsets[index][tensor] // 4, layout.num_bytes // 4
                to, source = self._exchanged
                here = (first <= to) & (to < first + length)
                words = flat.view(torch.uint8)[: 4 * length].view(torch.int32)
                places = [torch.from_numpy(of[here] - first).to(words.device) for of in (to, source)]
                words.index_copy_(0, places[0], words.index_select(0, places[1]))
            found.append(flat.as_strided(layout.shape, layout.stride))
        return found

    def differs(self, index: int) -> torch.Tensor:
        """Whether a set has other content than `written` says, as one truth value on its device. Asynchronous.

        No copies are made: the words of the stamp are exchanged back meanwhile.
        """
        number, distances = self._content[index]
        self._exchange()
        found = torch.zeros((), dtype=torch.bool, device=self._words.device)
        for target, values, distance in zip(self._targets[index], self._bases[number], distances, strict=True):
            kept = len(values) - distance
            for now, then in ((target[distance:], values[:kept]), (target[:distance], values[kept:])):
                for piece, right in pieces(_bits(now), _bits(then)):
                    found |= (piece != right).any()
        self._exchange()
        return found

    def draw_stamp(self, length: int) -> Callable[[], None]:
        """What exchanges words at secret places of the first `length` sets, when it is called: asynchronously."""
        places = self._stampable(length)
        if not places:
            return lambda: None
        one, two = draw_exchange(places)
        both = np.stack([np.concatenate([one, two]), np.concatenate([two, one])])
        self._pairs = torch.from_numpy(both).to(self._words.device)

        def stamp() -> None:
            self._exchanged = both[0], both[1]
            self._exchange()

        return stamp

    def _exchange(self) -> None:
        """Exchange the words of the last stamp, if there was one: a second time that undoes it."""
        if self._exchanged is not None:
            to, source = self._pairs
            self._words.index_copy_(0, to, self._words.index_select(0, source))

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


def draw_exchange(places: Sequence[tuple[int, int]]) -> tuple[Integers, Integers]:
    """Pairs of words to exchange, secretly drawn; no word is in two of them, so that it is an exchange.

    Args:
        places: first word and number of words, at least 2, of ranges that do not overlap.

    Returns:
        words of first halves, and their partners in the second halves of the same ranges; equal lengths. Each half is
        cut into equal strips, and one word of each strip is drawn.
    """
    generator = np.random.default_rng(secrets.randbits(128))
    starts, sizes = (np.array(column, dtype=np.int64) for column in zip(*places, strict=True))
    halves = sizes // 2
    counts = np.minimum(max(1, NUM_STAMPS // len(places)), halves)
    owner = np.repeat(np.arange(len(places)), counts)
    strip = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    width = (halves // counts)[owner]
    one = starts[owner] + strip * width + generator.integers(0, width)
    return one, one + halves[owner]


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
