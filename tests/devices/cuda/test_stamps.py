"""Stamps: what changes inputs last, without a device."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kerneldojo.devices.cuda import stamps
from kerneldojo.devices.cuda.inputs import Layout
from kerneldojo.devices.cuda.sampling import BLOCK_BYTES, NUM_BLOCKS, NUM_NEAR, draw_plan
from kerneldojo.devices.cuda.stamps import Extent, Stamp


@given(sizes=st.lists(st.integers(2, 10**6), min_size=1, max_size=64), gaps=st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_words_are_exchanged_within_their_range_and_none_twice(sizes: list[int], gaps) -> None:
    places: list[tuple[int, int]] = []
    for size in sizes:
        places.append((sum(map(sum, places[-1:])) + gaps.randrange(100), size))
    gaps.shuffle(places)
    one, two = stamps.draw_exchange(*columns(places))
    both = np.concatenate([one, two])
    assert len(set(both.tolist())) == len(both)
    for start, size in places:
        inside = (one >= start) & (one < start + size)
        assert 1 <= inside.sum() <= stamps.NUM_WORDS // len(places)
        assert ((two[inside] >= start + size // 2) & (two[inside] < start + size)).all()


def test_a_word_may_go_anywhere_in_its_half() -> None:
    draws = [stamps.draw_exchange(*columns([(0, 1 << 14)]))[0] for _ in range(240)]
    assert set(np.concatenate(draws).tolist()) == set(range(1 << 13))
    assert not np.array_equal(draws[0], draws[1])


@given(
    items=st.lists(st.tuples(st.integers(2, 5000), st.sampled_from([1, 2, 4, 8, 16])), min_size=1, max_size=4),
)
@settings(max_examples=100, deadline=None)
def test_blocks_that_change_places_lie_in_their_input_and_apart(items: list[tuple[int, int]]) -> None:
    extents = laid_out([(max(count, 8 // item_bytes) * item_bytes, item_bytes) for count, item_bytes in items])
    swap = stamps.draw_swap(extents)
    assert swap is not None and swap.extent in extents
    assert swap.one >= 0 and swap.one + swap.width <= swap.two
    assert swap.two + swap.width <= swap.extent.num_bytes
    assert 0 < swap.width <= stamps.BLOCK_BYTES
    assert all(number % swap.extent.unit == 0 for number in (swap.one, swap.two, swap.width))
    following = [stamps.draw_swap(extents, swap) for _ in range(8)]
    assert {(one.extent, one.one, one.width) for one in following if one} == {(swap.extent, swap.one, swap.width)}
    assert all(one and swap.one + swap.width <= one.two <= one.extent.num_bytes - one.width for one in following)


def columns(places: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    starts, sizes = (np.array(column, dtype=np.int64) for column in zip(*places, strict=True))
    return starts, sizes


def laid_out(sizes: list[tuple[int, int]]) -> list[Extent]:
    extents: list[Extent] = []
    for num_bytes, item_bytes in sizes:
        offset = sum(-(-one.num_bytes // 512) * 512 for one in extents)
        extents.append(Extent(offset, num_bytes, item_bytes))
    return extents


def test_places_are_told_of_the_input_that_holds_them_where_others_are_empty() -> None:
    """As those of two sets of 1,024 bytes each."""
    extents = [Extent(0, 0, 4), Extent(0, 40, 4), Extent(512, 0, 4), Extent(512, 400, 4), Extent(1024, 0, 4)]
    words = torch.zeros(512, dtype=torch.int32)
    pairs = np.array([1, 384]), np.array([9, 402])
    swap = stamps.Swap(extents[3], 8, 200, 4)
    stamp = Stamp(words, 1024, extents, pairs, swap)
    places = [tuple(row) for row in stamp.places().tolist()]
    assert places[:4] == [(0, 4, 40), (1, 0, 400), (0, 36, 40), (1, 72, 400)]
    assert set(places[4:]) == {(0, 8, 400), (0, 200, 400)} and len(places) == 4 + stamps.NUM_OF_BLOCK


def test_where_nothing_may_be_moved_nothing_is() -> None:
    assert stamps.draw_swap([]) is None
    nothing = np.zeros(0, dtype=np.int64)
    words = torch.arange(64, dtype=torch.int32)
    stamp = Stamp(words, 256, [], (nothing, nothing), None)
    stamp.exchange()
    stamp.settle()
    stamp.undo()
    assert torch.equal(words, torch.arange(64, dtype=torch.int32))
    assert len(stamp.places()) == 0 and len(stamp.last[1]) == 0


@given(num_sets=st.integers(1, 6), sizes=st.lists(st.integers(4, 3000), min_size=1, max_size=3))
@settings(max_examples=50, deadline=None)
def test_a_stamp_moves_words_about_within_each_input_and_can_be_undone(num_sets: int, sizes: list[int]) -> None:
    extents = laid_out([(4 * size, 4) for size in sizes])
    set_bytes = sum(-(-one.num_bytes // 512) * 512 for one in extents)
    before = torch.arange(num_sets * set_bytes // 4, dtype=torch.int32)
    words = before.clone()
    ranges = [
        ((index * set_bytes + one.offset) // 4, one.num_bytes // 4) for index in range(num_sets) for one in extents
    ]
    stamp = Stamp(words, set_bytes, extents, stamps.draw_exchange(*columns(ranges)), stamps.draw_swap(extents))
    assert torch.equal(words, before), "drawing changes nothing"
    stamp.exchange()
    stamp.settle()
    changed = words != before
    for start, size in ranges:
        assert sorted(words[start : start + size].tolist()) == list(range(start, start + size)), (
            "moved about, all there"
        )
    told = {
        (index * set_bytes + one.offset + place) // 4
        for index, place, num_bytes in stamp.places()
        for one in extents
        if one.num_bytes == num_bytes
    }
    if len({one.num_bytes for one in extents}) == len(extents):
        assert told and all(changed[place] for place in told), "where it says that it changes something it does"
    for index in range(num_sets):
        for one in extents:
            start = (index * set_bytes + one.offset) // 4
            again = before[start : start + one.num_bytes // 4].clone()
            stamp.apply(again, index, one.offset)
            assert torch.equal(again, words[start : start + len(again)])
    for _ in range(2):  # All that asks wants it undone, and it is so once.
        stamp.undo()
        assert torch.equal(words, before)


@given(length=st.integers(1, 256), rows=st.integers(1, 300), columns=st.integers(1, 300))
@settings(max_examples=50, deadline=None)
def test_outputs_are_read_where_inputs_changed_last(length: int, rows: int, columns: int) -> None:
    like_it = Layout((rows, columns), (columns, 1), torch.float32)
    half = Layout((rows, columns), (columns, 1), torch.bfloat16)
    sums = Layout((rows,), (1,), torch.float32)
    generator = np.random.default_rng(0)
    elements = generator.integers(0, rows * columns, length)
    near = np.stack([np.arange(length), 4 * elements, np.full(length, like_it.num_bytes)], axis=1)
    plan = draw_plan(length, [like_it, half, sums], near)
    assert len(plan.calls) == len(plan.tensors) == len(plan.starts) == NUM_BLOCKS
    for call, tensor, start in zip(
        plan.calls[-NUM_NEAR:], plan.tensors[-NUM_NEAR:], plan.starts[-NUM_NEAR:], strict=True
    ):
        layout, element = (like_it, half, sums)[tensor], int(elements[call])
        meant = element // columns if layout is sums else element
        first = int(start) // layout.dtype.itemsize
        assert first <= meant < first + max(1, min(BLOCK_BYTES, layout.num_bytes) // layout.dtype.itemsize)
    if length <= NUM_NEAR:
        assert set(plan.calls[-NUM_NEAR:].tolist()) == set(range(length)), "each call is looked at"
