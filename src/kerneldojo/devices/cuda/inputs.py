"""Inputs of timed calls: many sets in one shared region, with content that nobody has seen before.

Every call of a window has a set of its own, so that every call meets a cold cache, and before every window the judge
writes all sets anew, with content made from a few drawn sets (`content`).

Last of all a stamp exchanges words and blocks at secret places of what is rotated (`stamps`). It takes microseconds and
makes whatever was computed from the content before worthless.

Whoever is timed can write to this memory, too, and the reference meets it afterwards: an input that makes the answer
easy would make the two agree. So the judge remembers what it wrote, can say it again (`written`), and tells whether it
is still there (`differs`).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kerneldojo.devices.cuda.comparison import can_compare, compare
from kerneldojo.devices.cuda.content import exchangeable, write
from kerneldojo.devices.cuda.draws import Integers
from kerneldojo.devices.cuda.memory import SharedRegion, span
from kerneldojo.devices.cuda.recipes import COPIED, Kind, Recipes, Way, draw_recipes, rotation, segments
from kerneldojo.devices.cuda.rotation import WORDS, Rotation, can_launch, flat, launch, num_words
from kerneldojo.devices.cuda.stamps import Extent, Stamp, Swap, WordRanges, draw_exchange, draw_swap
from kerneldojo.problems.pieces import pieces

ALIGNMENT = 512


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

    def lies_as(self, stride: Sequence[int]) -> bool:
        """Whether its elements lie in the order that these strides give."""
        return len(stride) == len(self.shape) and all(
            size == 1 or mine == other for size, mine, other in zip(self.shape, self.stride, stride, strict=True)
        )


def plain_stride(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    return torch.empty(shape, device="meta").stride()


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
        ways: for each tensor of a set, how new content is made of it.
        count: number of sets.
    """

    def __init__(
        self, region: SharedRegion, bases: Sequence[Sequence[torch.Tensor]], ways: Sequence[Way], count: int
    ) -> None:
        self.layouts = [Layout.of(tensor) for tensor in bases[0]]
        self.count = count
        if num_sets(self.layouts, region.size, count) < count:
            raise ValueError(f"{count} sets do not fit into {region.size} bytes")
        self._bases = [list(drawn) for drawn in zip(*bases, strict=True)]
        """Each tensor as it was drawn."""
        self._sources = [[flat(tensor) for tensor in drawn] for drawn in self._bases]
        """The same as memory: views cost a slow host a microsecond each, and a round needs them by the hundred."""
        self._kinds = [Kind.of(way, tensor) for way, tensor in zip(ways, bases[0], strict=True)]
        self._num_bases = len(bases)
        self._region = region
        self.num_fresh = 0
        """Sets that were written last, the first ones."""
        self.may_change = False
        """Whether calls write to them, as the reference does itself: then whoever plays next has them `restored`."""
        self._offsets: list[list[int]] = []
        position = 0
        for _ in range(count):
            self._offsets.append([])
            for layout in self.layouts:
                self._offsets[-1].append(position)
                position += -(-layout.num_bytes // ALIGNMENT) * ALIGNMENT
        self._targets = [
            [
                region.tensor(offset, layout.shape, layout.stride, layout.dtype)
                for offset, layout in zip(offsets, self.layouts, strict=True)
            ]
            for offsets in self._offsets
        ]
        self._places = [[flat(target) for target in targets] for targets in self._targets]
        self._set_bytes = set_bytes(self.layouts)
        self._words = region.tensor(0, (region.size // 4,), (1,), torch.int32)
        self._recipes = draw_recipes(count, self._num_bases, self._kinds)
        """What each set is made of, once it is written."""
        self._fresh = self._recipes
        """Of the sets that were written last."""
        self._addresses = [_addresses(column) for column in zip(*self._places, strict=True)]
        self._source_addresses = [_addresses(drawn) for drawn in self._sources]
        self._ranges = [found for tensor in range(len(self.layouts)) if (found := self._exchangeable(tensor))]
        """Of each input in which something may change places: where, in the first set."""
        self._word_ranges = WordRanges(self._ranges, self._set_bytes)
        self._wholes = [
            Extent(offset, layout.num_bytes, layout.dtype.itemsize)
            for offset, layout in zip(self._offsets[0], self.layouts, strict=True)
        ]
        self._swap: Swap | None = None
        self._stamp: Stamp | None = None
        """What was drawn since something was written last."""

    def offset(self, index: int, tensor: int) -> int:
        """Bytes from the beginning of the region to a tensor of a set."""
        return self._offsets[index][tensor]

    @property
    def can_refresh(self) -> bool:
        """Whether there is anything to make content from."""
        return self._num_bases > 0

    def forget_bases(self, num_left: int) -> None:
        """Give drawn sets' memory back, all but the first `num_left`: what was written before cannot be said again."""
        self._num_bases = min(num_left, self._num_bases)
        self._bases = [drawn[:num_left] for drawn in self._bases]
        self._sources = [drawn[:num_left] for drawn in self._sources]
        self._source_addresses = [addresses[:num_left] for addresses in self._source_addresses]

    def refresh(self, length: int) -> None:
        """Write new content into the first `length` sets. Asynchronous."""
        self._stamp, self.num_fresh = None, length
        self._fresh = draw_recipes(length, self._num_bases, self._kinds)
        self._recipes.put(self._fresh)
        self._write(self._fresh)

    def restore(self) -> None:
        """Write what `refresh` wrote last once more, the stamp still to come: for whoever is timed after one whose
        calls may have changed it. Asynchronous."""
        self._write(self._fresh)
        if self._stamp is not None:
            self._stamp.begin_again()

    def _write(self, recipes: Recipes) -> None:
        for tensor, (kind, bases) in enumerate(zip(self._kinds, self._bases, strict=True)):
            first = self._places[0][tensor]
            if kind.way in COPIED and can_launch(first):
                addresses, sources = self._addresses[tensor], self._source_addresses[tensor]
                launch(recipes.rows(tensor, kind, addresses, sources, num_words(first.element_size())), first)
                continue
            for index, recipe in enumerate(recipes):
                write(self._targets[index][tensor], kind, bases, recipe, tensor)

    def _rotation(self, index: int, tensor: int) -> Rotation | None:
        """What is copied into an input of a set; None for what is made in another way."""
        kind = self._kinds[tensor]
        if kind.way not in COPIED:
            return None
        return rotation(self._places[index][tensor], kind, self._sources[tensor], self._recipes[index], tensor)

    def written(self, index: int) -> list[torch.Tensor]:
        """What was written into a set of this round, stamp included, as tensors of their own."""
        found: list[torch.Tensor] = []
        for tensor, layout in enumerate(self.layouts):
            made = self._made(index, tensor)
            if self._stamp is not None:
                words = flat(made).view(torch.uint8)[: layout.num_bytes // 4 * 4].view(torch.int32)
                self._stamp.apply(words, index, self._offsets[0][tensor])
            found.append(made)
        return found

    def _made(self, index: int, tensor: int) -> torch.Tensor:
        """An input of a set as it was before the stamp, as a tensor of its own."""
        bases, layout = self._bases[tensor], self.layouts[tensor]
        made = torch.empty_like(flat(bases[0])).as_strided(layout.shape, layout.stride)
        write(made, self._kinds[tensor], bases, self._recipes[index], tensor)
        return made

    def differs(self, index: int) -> torch.Tensor:
        """Whether a set has other content than `written` says: 1 if so, on its device. Asynchronous.

        No copies are made of what is rotated. What the stamp exchanged is exchanged back, in all sets: nobody is to be
        timed on them after this.
        """
        if self._stamp is not None:
            self._stamp.undo()
        found = torch.zeros((), dtype=torch.int32, device=self._words.device)
        for tensor in range(len(self.layouts)):
            made = self._rotation(index, tensor)
            if made is not None and can_compare(made):
                compare(made, found)
                continue
            for now, then in self._compared(index, tensor):
                for piece, right in pieces(_bits(now), _bits(then)):
                    found |= (piece != right).any()
        return found

    def _compared(self, index: int, tensor: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """An input of a set as it is and as it was before the stamp, both flat, part by part."""
        target, kind, sources = self._places[index][tensor], self._kinds[tensor], self._sources[tensor]
        if kind.way not in COPIED:
            yield target, flat(self._made(index, tensor))
            return
        for place, base, origin in segments(self._recipes[index], tensor, kind):
            yield target[place], sources[base][origin]

    def _exchangeable(self, tensor: int) -> list[Extent]:
        """Where elements of an input may change places, in whole words and whole elements."""
        item, offset = self.layouts[tensor].dtype.itemsize, self._offsets[0][tensor]
        found: list[Extent] = []
        for first, count in exchangeable(self._kinds[tensor], self._bases[tensor]):
            unit = max(4, item)
            start, stop = -(-first * item // unit) * unit, (first + count) * item // unit * unit
            if stop - start >= 2 * unit:
                found.append(Extent(offset + start, stop - start, item))
        return found

    def draw_stamp(self, length: int) -> Stamp:
        """What changes the first `length` sets a last time, drawn for the content that was written last."""
        pairs = draw_exchange(*self._word_ranges.draw(length))
        self._swap = draw_swap(list(map(_one_of, self._ranges)), self._swap)
        self._stamp = Stamp(self._words, self._set_bytes, self._wholes, pairs, self._swap)
        return self._stamp


def _addresses(tensors: Sequence[torch.Tensor]) -> Integers:
    return np.array([tensor.data_ptr() for tensor in tensors], dtype=np.int64)


def _one_of(ranges: Sequence[Extent]) -> Extent:
    """One that is secretly chosen."""
    return ranges[0] if len(ranges) == 1 else secrets.choice(ranges)  # Most inputs are one range as a whole.


def _bits(flat: torch.Tensor) -> torch.Tensor:
    """Elements as integers: a number that is none does not equal itself."""
    return flat.view(WORDS[flat.element_size()]) if len(flat) else flat
