"""Stamps: the last changes of timed inputs, at secret places, which make what was computed before them worthless.

A stamp has two parts. Single words of all sets are exchanged while the caches are cold, before a window's first side
has its context brought in. That takes a while in which these inputs are there and no clock runs, and whoever works for
the judge on the device meanwhile would have contexts switched again (its copies do that, too). So the other part comes
with the signal that starts the clock: a block of the first set changes places with another one, whose content the page
carries, and the side's own loop writes it, in its window. What a first call was computed from before is not what it is
asked for: one call alone always costs its own launch, and calls in a row that were computed at once stand out from it.
A loop that does not write the block is wrong where the judge looks.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from kerneldojo.devices.cuda import draws
from kerneldojo.devices.cuda.draws import Integers

NUM_WORDS = 1024
"""Words that are exchanged while the caches are cold, in all."""
MOST_STAMPED = 64
"""Inputs, of all sets together, in which they are, at most."""
BLOCK_BYTES = 4096
"""Of the block that comes with the signal, at most."""
NUM_OF_WORDS, NUM_OF_BLOCK = 128, 32
"""Places of words, and of blocks, that are told to whoever samples outputs."""


@dataclass(frozen=True)
class Extent:
    """Where an input, or a range of one in which elements may change places, lies in each set, in bytes."""

    offset: int
    """From the set's beginning."""
    num_bytes: int
    item_bytes: int

    @property
    def unit(self) -> int:
        """What is exchanged is whole words, and whole elements."""
        return max(4, self.item_bytes)


@dataclass(frozen=True)
class Swap:
    """Two blocks of an input of the first set that change places; in bytes."""

    extent: Extent
    """The range that both lie in."""
    one: int
    """From the range's beginning: in its first half. What is to be here comes with the signal."""
    two: int
    """In its second half."""
    width: int


def draw_swap(extents: Sequence[Extent], last: Swap | None = None) -> Swap | None:
    """Choose secretly which blocks of the first set change places last.

    Args:
        extents: of which one is chosen.
        last: another round's, if there was one: what comes with the signal then goes where it went, for finding that
            place takes a side time in its window. What is known is only where; what it will be is not.
    """
    if not extents:
        return None
    extent = last.extent if last is not None else secrets.choice(extents)
    half = extent.num_bytes // extent.unit // 2
    width = min(BLOCK_BYTES // extent.unit, half)
    one, two = (extent.unit * (start + secrets.randbelow(half - width + 1)) for start in (0, half))
    return Swap(extent, last.one if last is not None else one, two, extent.unit * width)


class WordRanges:
    """Where words of timed inputs may change places, in all sets.

    Args:
        ranges: of each input that has any, where they are in the first set.
        set_bytes: from one set to the next.
    """

    def __init__(self, ranges: Sequence[Sequence[Extent]], set_bytes: int) -> None:
        self._set_words = set_bytes // 4
        self._inputs = [
            np.array([(one.offset // 4, one.num_bytes // 4) for one in found], dtype=np.int64)
            for found in ranges
            if found[0].item_bytes <= 4
        ]
        """Of elements that are no larger than a word: first word, and how many."""
        self._num_ranges = np.array(list(map(len, self._inputs)), dtype=np.int64)

    def draw(self, length: int) -> tuple[Integers, Integers]:
        """One range of each input of the first `length` sets, secretly chosen, `MOST_STAMPED` in all at most: their
        first words, and how many words each has."""
        sets, inputs = np.divmod(np.arange(length * len(self._inputs)), max(1, len(self._inputs)))
        numbers = draws.below(self._num_ranges[inputs], len(inputs))
        found = np.empty((len(inputs), 2), dtype=np.int64)
        for number, ranges in enumerate(self._inputs):
            found[inputs == number] = ranges[numbers[inputs == number]]
        found[:, 0] += sets * self._set_words
        if len(found) > MOST_STAMPED:
            found = found[draws.order(len(found))[:MOST_STAMPED]]
        return found[:, 0], found[:, 1]


def draw_exchange(starts: Integers, sizes: Integers) -> tuple[Integers, Integers]:
    """Pairs of words to exchange, secretly drawn; no word is in two of them, so that it is an exchange.

    Args:
        starts: first words of ranges that do not overlap.
        sizes: how many words each has, at least 2.

    Returns:
        words of first halves, and their partners in the second halves of the same ranges; equal lengths. Each half is
        cut into equal strips, and one word of each strip is drawn.
    """
    halves = sizes // 2
    counts = np.minimum(max(1, NUM_WORDS // max(1, len(starts))), halves)
    owner = np.repeat(np.arange(len(starts)), counts)
    strip = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    width = (halves // counts)[owner]
    one = starts[owner] + strip * width + draws.below(width, len(width))
    return one, one + halves[owner]


class Stamp:
    """One round's stamp. What it needs to know of the content is read when it is made, asynchronously.

    Args:
        words: the sets' memory, as words of four bytes.
        set_bytes: from one set to the next.
        inputs: of a set.
        pairs: words to exchange, as from `draw_exchange`.
        swap: blocks that change places last, if any do. Words in them are not exchanged.
    """

    def __init__(
        self,
        words: torch.Tensor,
        set_bytes: int,
        inputs: Sequence[Extent],
        pairs: tuple[Integers, Integers],
        swap: Swap | None,
    ) -> None:
        self._words, self._set_bytes, self._inputs, self._swap = words, set_bytes, inputs, swap
        both = np.concatenate([pairs, pairs[::-1]], axis=1)
        both = both[:, ~self._are_in_blocks(both).any(axis=0)]
        self._to, self._source = both
        told = torch.from_numpy(np.ascontiguousarray(both))
        # From pinned memory: else the host would wait until the content before it has been written.
        self._pairs = (told.pin_memory() if words.is_cuda else told).to(words.device, non_blocking=True)
        self._is_exchanged = self._is_settled = self._is_undone = False
        if swap is not None:
            self._one, self._two = (self._block(words, swap.extent.offset, start) for start in (swap.one, swap.two))
            self._last = self._two.clone()
            self._content = torch.empty(len(self._last), dtype=torch.int32, pin_memory=words.is_cuda)
            self._content.copy_(self._last, non_blocking=True)

    def exchange(self) -> None:
        """The first part, once a round: asynchronously."""
        if self._is_exchanged:
            return
        self._is_exchanged = True
        self._exchange_words()
        if self._swap is not None:
            self._two.copy_(self._one)

    @property
    def last(self) -> tuple[int, npt.NDArray[np.uint8]]:
        """What comes with the signal: where it belongs, in bytes from the sets' beginning, and the content."""
        if self._swap is None:
            return 0, np.zeros(0, dtype=np.uint8)
        return self._swap.extent.offset + self._swap.one, self._content.view(torch.uint8).numpy()

    def settle(self) -> None:
        """The last part, if nobody did it: after a window, asynchronously."""
        self._is_settled = True
        if self._swap is not None:
            self._one.copy_(self._last)

    def begin_again(self) -> None:
        """Nothing is done yet: the content was written once more."""
        self._is_exchanged = self._is_settled = self._is_undone = False

    def undo(self) -> None:
        """Undo in all sets what was done, once nobody is timed on them any more: asynchronously.

        A side that ended in its window may not have written its part: then that is done first.
        """
        if not self._is_exchanged or self._is_undone:
            return
        self._is_undone = True
        if not self._is_settled:
            self.settle()
        self._exchange_words()
        if self._swap is not None:
            _swap(self._one, self._two)

    def apply(self, words: torch.Tensor, index: int, offset: int) -> None:
        """Do what was done to an input of a set that was written anew elsewhere.

        Args:
            words: the input.
            index: of the set.
            offset: of the input in its set, in bytes.
        """
        if not self._is_exchanged:
            return
        if len(self._to):
            first = (index * self._set_bytes + offset) // 4
            here = (first <= self._to) & (self._to < first + len(words))
            to, source = (torch.from_numpy(of[here] - first).to(words.device) for of in (self._to, self._source))
            words.index_copy_(0, to, words.index_select(0, source))
        if self._swap is not None and index == 0 and 0 <= self._swap.extent.offset - offset < 4 * len(words):
            first = self._swap.extent.offset - offset
            _swap(*(self._block(words, first, start) for start in (self._swap.one, self._swap.two)))

    def places(self) -> Integers:
        """Where inputs are changed: (places, 3) of set, byte of an input, and that input's bytes.

        Of the words and of the blocks some, secretly chosen: so many as outputs are read near them.
        """
        num_words = len(self._to)
        words = self._to[draws.below(num_words, NUM_OF_WORDS)] if num_words > NUM_OF_WORDS else self._to
        sets, within = np.divmod(4 * words, self._set_bytes)
        if self._swap is not None:
            extent = self._swap.extent
            units = draws.below(self._swap.width // extent.unit, NUM_OF_BLOCK).reshape(2, -1)
            blocks = extent.offset + np.array([[self._swap.one], [self._swap.two]]) + extent.unit * units
            sets, within = np.append(sets, np.zeros_like(blocks)), np.append(within, blocks)
        if not len(within):
            return np.zeros((0, 3), dtype=np.int64)
        starts = np.array([one.offset for one in self._inputs])
        lengths = np.array([one.num_bytes for one in self._inputs])
        owner = np.searchsorted(starts, within, side="right") - 1  # The last that begins there: others are empty.
        found = np.stack([sets, within - starts[owner], lengths[owner]], axis=1)
        return found[found[:, 1] < found[:, 2]]

    def _exchange_words(self) -> None:
        if len(self._to):
            to, source = self._pairs
            self._words.index_copy_(0, to, self._words.index_select(0, source))

    def _are_in_blocks(self, words: Integers) -> npt.NDArray[np.bool_]:
        if self._swap is None:
            return np.zeros(words.shape, dtype=np.bool_)
        within = 4 * words - self._swap.extent.offset
        starts = (self._swap.one, self._swap.two)
        one, two = ((within >= start) & (within < start + self._swap.width) for start in starts)
        return one | two

    def _block(self, words: torch.Tensor, offset: int, start: int) -> torch.Tensor:
        assert self._swap is not None
        return words[(offset + start) // 4 : (offset + start + self._swap.width) // 4]


def _swap(one: torch.Tensor, two: torch.Tensor) -> None:
    kept = one.clone()
    one.copy_(two)
    two.copy_(kept)
