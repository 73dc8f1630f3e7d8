"""The parts of the stopwatch that need no device."""

import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kerneldojo.contestant import tree
from kerneldojo.devices.cuda import page as pages
from kerneldojo.devices.cuda.inputs import Layout, num_sets, set_bytes
from kerneldojo.devices.cuda.memory import OutOfRegionError, span
from kerneldojo.devices.cuda.page import Late, Page
from kerneldojo.devices.cuda.sampling import BLOCK_BYTES, draw_plan, logical_indices, scaled
from kerneldojo.devices.cuda.window import Side, disjoint


@given(shape=st.lists(st.integers(1, 5), max_size=4), order=st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_positions_in_memory_are_found_in_the_flattened_tensor(shape: list[int], order) -> None:
    axes = list(range(len(shape)))
    order.shuffle(axes)
    inverse = [axes.index(axis) for axis in range(len(shape))]
    tensor = torch.arange(int(np.prod(shape))).reshape([shape[axis] for axis in axes]).permute(inverse)
    assert list(tensor.shape) == shape
    layout = Layout.of(tensor)
    positions = np.arange(tensor.numel())
    found = tensor.reshape(-1)[torch.from_numpy(logical_indices(positions, layout))]
    memory = tensor.as_strided((tensor.numel(),), (1,))
    assert torch.equal(found, memory)


@given(length=st.integers(1, 64), rows=st.integers(1, 300), seed=st.integers(0, 3))
@settings(max_examples=30, deadline=None)
def test_a_plan_samples_every_output_and_stays_inside(length: int, rows: int, seed: int) -> None:
    layouts = [
        Layout((rows, 7), (7, 1), torch.float32),
        Layout((3,), (1,), torch.float16),
        Layout((), (), torch.float64),
    ]
    plan = draw_plan(length, layouts)
    assert {(c, t) for c, t in zip(plan.calls.tolist(), plan.tensors.tolist(), strict=True)} == {
        (c, t) for c in range(length) for t in range(3)
    }
    for tensor, layout in enumerate(layouts):
        starts = plan.starts[plan.tensors == tensor]
        assert (starts % layout.dtype.itemsize == 0).all()
        assert (starts >= 0).all()
        assert (starts + min(BLOCK_BYTES, layout.num_bytes) <= layout.num_bytes).all()


@given(
    part=st.integers(0, (1 << 40) - 1), whole=st.integers(0, 1 << 40), length=st.integers(1, 1 << 40), few=st.booleans()
)
def test_a_part_is_scaled_exactly_whatever_the_product(part: int, whole: int, length: int, few: bool) -> None:
    part, whole = (part % 1000, whole % 1000) if few else (part, whole)
    part %= length  # It lies within: else where it is in `whole` may be beyond any number that NumPy has.
    found = scaled(*(np.array([value, value]) for value in (part, whole, length)))
    assert found.tolist() == [part * whole // length] * 2


@pytest.mark.parametrize("gib", [1, 4, 6, 8, 16, 64])
def test_blocks_near_changed_inputs_lie_inside_of_outputs_of_any_size(gib: int) -> None:
    layout = Layout((gib << 28,), (1,), torch.float32)
    places = np.linspace(0, layout.num_bytes - 4, 200).astype(np.int64) // 4 * 4
    near = np.stack([np.zeros_like(places), places, np.full_like(places, layout.num_bytes)], axis=1)
    starts = draw_plan(1, [layout], near).starts
    assert (starts >= 0).all()
    assert (starts + BLOCK_BYTES <= layout.num_bytes).all()
    assert set(starts[-128:].tolist()) <= {min(place, layout.num_bytes - BLOCK_BYTES) for place in places.tolist()}


@pytest.mark.parametrize("num_bytes", [BLOCK_BYTES, BLOCK_BYTES + 4, 20 * BLOCK_BYTES])
def test_every_place_of_an_output_is_sampled_now_and_then_and_its_end_more_often(num_bytes: int) -> None:
    layouts = [Layout.of(torch.empty(num_bytes // 4)), Layout.of(torch.empty(1))]
    starts, num_small = [], 0
    for _ in range(100):
        plan = draw_plan(4, layouts)
        starts += plan.starts[plan.tensors == 0].tolist()
        num_small += int((plan.tensors == 1).sum())
    last = num_bytes - BLOCK_BYTES
    assert {*starts} == {*range(0, last + 1, 4)}
    if num_bytes > 2 * BLOCK_BYTES:
        assert 0.09 < starts.count(last) / len(starts) < 0.12
    assert num_small >= 100 * 4, "each output of each call once"


def test_two_plans_differ() -> None:
    layouts = [Layout((1 << 20,), (1,), torch.float32)]
    assert not np.array_equal(draw_plan(4, layouts).starts, draw_plan(4, layouts).starts)


def test_outputs_that_share_memory_are_found() -> None:
    assert disjoint(np.array([[0], [512], [1024]]), [512])
    assert not disjoint(np.array([[0], [511], [1024]]), [512])
    assert not disjoint(np.array([[0], [4096], [0]]), [512])
    assert disjoint(np.array([[0, 0], [512, 512]]), [512, 512])  # one call may return a tensor twice
    assert not disjoint(np.array([[0, 4096], [8192, 100]]), [4096, 64])


def test_what_is_empty_may_lie_anywhere_and_nothing_else_may() -> None:
    layouts = (Layout((0, 3), (3, 1), torch.float32), Layout((8,), (1,), torch.float32))
    page = Page.create((1,))
    theirs = Page.open(page.fd)
    arena: Any = SimpleNamespace(page=page, heap=SimpleNamespace(size=4096), base=lambda _: 512)
    side = Side("contestant", arena, layouts, lambda: None)

    def told(*places: int) -> np.ndarray:
        page.go(2)
        theirs.wait_go(1)
        for place, offset in enumerate(places):
            theirs.put_offset(place, offset)
        theirs.done(pages.OK, len(places) // 2)
        return side.told(2)

    offsets = told(-4096, 1024, -4096, 2048)
    assert offsets.tolist() == [[512, 1024], [512, 2048]]
    assert side.holds(offsets)
    assert disjoint(offsets, side.lengths)
    assert not side.holds(told(512, -4096, 512, 2048))
    assert told(-4096, 1024).tolist() == [[-4096], [1024]], "it has another number of outputs"
    assert not side.holds(told(-4096, 1024))


def test_what_a_reference_keeps_may_lie_in_one_place_in_all_calls() -> None:
    layouts = (Layout((96,), (1,), torch.float32), Layout((64, 96), (96, 1), torch.float32))
    arena: Any = None
    side = Side("contestant", arena, layouts, lambda: None)
    places = np.array([[0, 4096], [0, 65536]])
    assert not disjoint(places, side.lengths)
    assert disjoint(places, replace(side, kept=frozenset({0})).lengths)
    assert not disjoint(np.array([[0, 4096], [0, 4096]]), replace(side, kept=frozenset({0})).lengths)


def test_views_outside_of_a_region_are_refused() -> None:
    assert span(0, (4, 4), (4, 1), 4, 64) == 64
    assert span(0, (4, 0), (4, 1), 4, 0) == 0
    for offset, shape, stride in (
        (4, (4, 4), (4, 1)),
        (-4, (2,), (1,)),
        (0, (2,), (-1,)),
        (2, (2,), (1,)),
        (0, (1 << 62,), (1,)),
        (0, (2, 2), (1 << 40, 1)),
        (0, (2,), (1, 1)),
    ):
        with pytest.raises(OutOfRegionError):
            span(offset, shape, stride, 4, 64)


def test_sets_are_counted_with_their_padding() -> None:
    layouts = [Layout((100,), (1,), torch.float32), Layout((1,), (1,), torch.int64)]
    assert set_bytes(layouts) == 1024
    assert num_sets(layouts, 10_000, longest=64) == 9
    assert num_sets(layouts, 1 << 30, longest=64) == 64


def test_a_window_is_signalled_both_ways() -> None:
    mine = Page.create((1 << 20, 2 << 20), silent=True)
    theirs = Page.open(mine.fd)
    assert theirs.silent
    assert theirs.region_bytes == (1 << 20, 2 << 20)

    seen: list[int] = []

    def contestant() -> None:
        while True:
            length, flags = theirs.wait_go(10, is_imminent=bool(seen and seen[-1] & pages.WAKE))
            seen.append(flags)
            if flags & pages.WAKE:
                theirs.done(pages.OK, 0)
                continue
            if not length:
                return
            for call in range(length):
                theirs.put_offset(2 * call, 512 * call)
                theirs.put_offset(2 * call + 1, 512 * call + 256)
                theirs.put_span(call, 1500 * flags)
            theirs.done(pages.OK, 2)

    thread = threading.Thread(target=contestant)
    thread.start()
    for length in (3, 1):
        mine.go(0, pages.WAKE)
        assert mine.wait_done(time.monotonic() + 10, lambda: None) == pages.OK
        mine.go(length, pages.WITH_EVENTS)
        assert mine.wait_done(time.monotonic() + 10, lambda: None) == pages.OK
        assert mine.offsets(length).tolist() == [[512 * call, 512 * call + 256] for call in range(length)]
        assert mine.spans_us(length) == [1.5] * length
    mine.go(0)
    thread.join(10)
    assert not thread.is_alive()


def test_a_contestant_that_never_answers_is_late_and_a_dead_one_is_noticed() -> None:
    page = Page.create((1,))
    page.go(5)
    with pytest.raises(Late):
        page.wait_done(time.monotonic() + 0.05, lambda: None)

    class Gone(Exception):
        pass

    def check() -> None:
        raise Gone

    with pytest.raises(Gone):
        page.wait_done(time.monotonic() + 10, check)


def test_a_contestant_that_rewinds_the_counter_gains_nothing() -> None:
    page, theirs = Page.create((1,)), None
    theirs = Page.open(page.fd)
    page.go(2)
    theirs.wait_go(1)
    theirs.done(pages.OK, 1)
    assert page.wait_done(time.monotonic() + 1, lambda: None) == pages.OK
    theirs._words[8] = 0  # the judge's own word, rewound by a cheat
    page.go(2)
    with pytest.raises(Late):
        page.wait_done(time.monotonic() + 0.05, lambda: None)


def test_absurd_counts_of_outputs_are_cut() -> None:
    page = Page.create((1,))
    theirs = Page.open(page.fd)
    page.go(3)
    theirs.wait_go(1)
    theirs.done(pages.OK, 1 << 40)
    assert page.offsets(3).shape == (3, pages.MAX_PLACES // 3)


@pytest.mark.parametrize("num_outputs", [0, 1, 2, 33, 300, tree.MAX_LEAVES])
def test_a_page_tells_of_all_outputs_of_as_many_calls_as_a_window_may_have(num_outputs: int) -> None:
    length = pages.most_calls(num_outputs)
    assert 2 <= length <= pages.MAX_CALLS
    page = Page.create((1,))
    theirs = Page.open(page.fd)
    page.go(length)
    theirs.wait_go(1)
    places = np.arange(length * num_outputs)
    for place in places.tolist():
        theirs.put_offset(place, place)
    theirs.put_span(length - 1, 5000)
    theirs.done(pages.OK, num_outputs)
    assert np.array_equal(page.offsets(length), places.reshape(length, num_outputs))
    assert page.spans_us(length)[-1] == 5.0
