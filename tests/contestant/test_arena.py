"""Slots from a contestant never reach outside the arena, and values keep their kind on the way."""

from __future__ import annotations

import math
import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kerneldojo.contestant import tree
from kerneldojo.contestant.arena import DTYPES, BadSlot, HostArena, Packer, Slot, extent, overlaps, parse_slot

SIZE = 1 << 16


def test_both_sides_see_the_same_bytes_and_neither_can_resize() -> None:
    mine = HostArena.create(SIZE)
    other = HostArena.open(os.dup(mine.fd))
    slot = Packer(mine).put(torch.arange(12.0).reshape(3, 4).t())
    assert torch.equal(other.view(slot), torch.arange(12.0).reshape(3, 4).t())
    assert other.view(slot).stride() == (1, 4)
    expanded = Packer(mine).put(torch.arange(3.0).expand(4, 3))
    assert torch.equal(other.view(expanded), torch.arange(3.0).expand(4, 3))
    with pytest.raises(PermissionError):
        os.ftruncate(other.fd, 10)


sizes = st.lists(st.integers(-2, 5000), max_size=4)


@given(
    offset=st.integers(-8, 2 * SIZE),
    shape=sizes,
    stride=sizes,
    dtype=st.sampled_from([*DTYPES, "object", "torch.float32", ""]),
)
def test_a_view_is_made_only_inside_the_arena(offset: int, shape: list[int], stride: list[int], dtype: str) -> None:
    arena = HostArena.create(SIZE)
    try:
        slot = parse_slot({"offset": offset, "shape": shape, "stride": stride, "dtype": dtype})
        view = arena.view(slot)
    except BadSlot:
        return
    first = view.data_ptr() - arena.view(Slot(offset=0, shape=[1], stride=[1], dtype="uint8")).data_ptr()
    assert list(view.shape) == shape
    assert view.numel() == 0 or first == offset
    assert offset + extent(shape, stride) * view.element_size() <= SIZE
    assert view.numel() * view.element_size() <= SIZE
    view.clone()


def test_one_element_is_not_expanded_beyond_all_memory() -> None:
    with pytest.raises(BadSlot, match="more elements"):
        HostArena.create(SIZE).view(Slot(offset=0, shape=[1 << 40], stride=[0], dtype="float32"))


@pytest.mark.parametrize(
    "claim", [None, [], {}, {"offset": "0"}, {"offset": 0, "shape": [1e9], "stride": [1], "dtype": "int8"}]
)
def test_malformed_slots_are_refused(claim: object) -> None:
    with pytest.raises(BadSlot):
        parse_slot(claim)


@pytest.mark.parametrize("shape", [[1 << 40], [1 << 70], [1 << 40, 1 << 40]])
def test_a_tensor_has_no_more_elements_than_memory(shape: list[int]) -> None:
    slot = Slot(offset=0, shape=shape, stride=[0] * len(shape), dtype="float32")
    with pytest.raises(BadSlot):
        HostArena.create(SIZE).view(slot)


def test_elements_that_share_memory_are_put_apart() -> None:
    arena = HostArena.create(SIZE)
    for shared in (torch.ones(1).expand(8), torch.arange(9.0).as_strided((4, 4), (1, 1))):
        assert torch.equal(arena.view(Packer(arena).put(shared)), shared)


def test_what_is_expanded_or_unfolded_shares_memory_and_what_is_cut_out_or_permuted_does_not() -> None:
    x = torch.zeros(4, 5, 6)
    for own in (x, x.permute(2, 0, 1), x[:, :2], x[:, ::2, 1:3].permute(1, 0, 2), x[:1].expand(1, 5, 6), x[:0]):
        assert not overlaps(own.shape, own.stride())
    for shared in (x[0, 0].expand(9, 6), x[0, 0].unfold(0, 3, 1), x[:, :1].expand(4, 5, 6).permute(2, 1, 0)):
        assert overlaps(shared.shape, shared.stride())


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data())
def test_two_indices_that_lead_to_one_place_are_never_missed(shape: list[int], data: st.DataObject) -> None:
    stride = [data.draw(st.integers(0, 20)) for _ in shape]
    places = [0]
    for size, step in zip(shape, stride, strict=True):
        places = [place + index * step for place in places for index in range(size)]
    if len(set(places)) < len(places):
        assert overlaps(shape, stride)


scalars = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(values)
def test_values_survive_the_crossing(value: object) -> None:
    arena = HostArena.create(SIZE)
    node = tree.encode(value, Packer(arena).put)
    back = tree.decode(node, arena.view)
    assert back == value
    assert type(back) is type(value)


def test_tensors_dtypes_and_infinities_survive() -> None:
    arena = HostArena.create(SIZE)
    value = ([torch.ones(3, dtype=torch.bfloat16)], {"k": torch.float16, "x": math.inf}, None)
    back = tree.decode(tree.encode(value, Packer(arena).put), arena.view)
    assert torch.equal(back[0][0], value[0][0])
    assert back[1] == value[1]


@pytest.mark.parametrize(
    "node",
    [
        7,
        {},
        {"value": [1]},
        {"value": 1, "list": []},
        {"eval": "1"},
        {"dict": [[1]]},
        {"list": {"a": 1}},
        {"dtype": "os"},
    ],
)
def test_malformed_trees_are_refused(node: object) -> None:
    with pytest.raises(tree.BadTree):
        tree.decode(node, lambda slot: torch.zeros(0))


def test_a_deep_tree_is_refused() -> None:
    node: dict[str, object] = {"value": 1}
    for _ in range(50):
        node = {"list": [node]}
    with pytest.raises(tree.BadTree):
        tree.decode(node, lambda slot: torch.zeros(0))


def test_strange_values_cannot_be_described() -> None:
    with pytest.raises(tree.BadTree):
        tree.encode(object(), lambda tensor: Slot(offset=0, shape=[], stride=[], dtype="int8"))
