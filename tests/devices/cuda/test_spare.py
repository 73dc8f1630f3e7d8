"""Memory that serves one process after the other: who may have it, when, and what is in it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from kerneldojo.devices.cuda.arena import CudaArena
from kerneldojo.devices.cuda.driver import CudaError
from kerneldojo.devices.cuda.page import Page
from kerneldojo.devices.cuda.spare import Spare

GRAIN = 512


class Region:
    """Host memory that poses as a region."""

    fd = None

    def __init__(self, size: int, _: int) -> None:
        self.size = -(-size // GRAIN) * GRAIN
        self._bytes = torch.zeros(self.size, dtype=torch.uint8)
        self.is_closed = False

    def bytes(self) -> torch.Tensor:
        assert not self.is_closed
        return self._bytes

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def made() -> list[Region]:
    return []


@pytest.fixture
def spare(made: list[Region], monkeypatch: pytest.MonkeyPatch) -> Spare:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)

    def create(size: int, device: int) -> Any:
        made.append(Region(size, device))
        return made[-1]

    return Spare(0, create)


def arena(spare: Spare, **options: Any) -> CudaArena:
    return CudaArena.create(1000, 3000, spare=spare, **options)


def test_what_a_dead_process_leaves_serves_the_next_one_and_is_empty(spare: Spare, made: list[Region]) -> None:
    first = arena(spare)
    for region in made:
        region.bytes().fill_(7)
    first.is_left = True
    first.close()
    assert len(spare) == 2
    assert made[0].bytes().max() == 7, "what nobody is given need not be cleared"
    second = arena(spare)
    assert (second.exchange, second.heap) == tuple(made), "nothing was allocated"
    assert not any(region.bytes().any() for region in made), "what the last one computed is there to be read"
    assert not second.is_left
    assert second.page.fd != first.page.fd, "what signals go through is its own"


def test_what_is_closed_twice_does_not_serve_two_at_once(spare: Spare, made: list[Region]) -> None:
    first = arena(spare)
    first.is_left = True
    first.close()
    first.close()
    assert len(spare) == 2
    others = [arena(spare), arena(spare)]
    assert len({id(region) for one in others for region in (one.exchange, one.heap)}) == 4
    spare.give_back(made[0])
    with pytest.raises(ValueError, match="twice"):
        spare.give_back(made[0])


def test_what_may_still_be_somebodys_is_nobodys(spare: Spare, made: list[Region]) -> None:
    arena(spare).close()
    assert len(spare) == 0
    assert all(region.is_closed for region in made)


def test_timed_inputs_are_their_owners_alone(spare: Spare, made: list[Region]) -> None:
    inputs: Any = Region(5000, 0)
    runner = arena(spare, inputs=inputs, owns_inputs=True)
    contestant = arena(spare, inputs=inputs)
    contestant.is_left = runner.is_left = True
    contestant.close()
    assert not inputs.is_closed
    runner.close()
    assert inputs.is_closed
    assert len(spare) == len(made) == 4


def test_what_it_was_timed_in_serves_the_next_one_too_but_not_the_runners_inputs(
    spare: Spare, made: list[Region]
) -> None:
    inputs: Any = Region(5000, 0)
    contestant = arena(spare)
    first = contestant.heap
    assert contestant.outputs_bytes == first.size // 2
    assert contestant.extend(9000, inputs) == ([], [inputs.size, 9216])
    assert contestant.outputs_bytes == 9216 - first.size, "beside what calls have fitted into before"
    contestant.leave_half()
    assert contestant.outputs_bytes == 9216 // 2
    assert contestant.heap not in (first, inputs)
    assert contestant.inputs is inputs
    sizes = [contestant.exchange.size, first.size, inputs.size, contestant.heap.size]
    assert contestant.total_bytes == sum(sizes)
    assert contestant.base(contestant.heap) == sum(sizes[:3]), "what was told of earlier lies where it lay"
    contestant.is_left = True
    contestant.close()
    assert not inputs.is_closed
    assert len(spare) == 3
    assert spare.take(9000) is made[2]


def test_a_runner_that_rests_has_nothing(made: list[Region]) -> None:
    exchange, heap, inputs = (Region(size, 0) for size in (1000, 3000, 5000))
    runner = CudaArena(Page.create((1024, 3072)), [exchange, heap], 0, owned=2)  # type: ignore[list-item]
    runner.spare = Spare(0, lambda size, device: Region(size, device))  # type: ignore[assignment,arg-type,return-value]
    runner.extend(9000, inputs, owns_inputs=True)  # type: ignore[arg-type]
    timed: Any = runner.heap
    runner.close()
    assert all(region.is_closed for region in (exchange, heap, inputs, timed)), "it may still have them mapped"
    assert len(runner.spare) == 0


def test_only_what_is_large_enough_is_taken(spare: Spare, made: list[Region]) -> None:
    spare.give_back(spare.take(1000))
    assert spare.take(3000) is not made[0]
    assert spare.take(1000) is made[0]
    assert [region.size for region in made] == [1024, 3072]


def test_what_cannot_be_cleared_is_freed(spare: Spare, made: list[Region], monkeypatch: pytest.MonkeyPatch) -> None:
    spare.give_back(spare.take(1000))

    def fail(*_: Any) -> None:
        raise RuntimeError("the device is lost")

    monkeypatch.setattr(torch.cuda, "synchronize", fail)
    with pytest.raises(RuntimeError, match="lost"):
        spare.take(1000)
    assert made[0].is_closed
    assert len(spare) == 0


def test_what_is_taken_while_others_are_timed_was_cleared_before(
    spare: Spare, made: list[Region], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = spare.take_cleared((64, 128))
    assert first is not None, "nobody has left anything yet"
    for region in first:
        region.bytes().fill_(7)
        spare.give_back(region)
    assert spare.take_cleared((64, 128)) is None, "clearing them now would be work for the device"
    assert spare.take_cleared((128,)) is None
    spare.clear()
    assert all(not region.bytes().any() for region in first)
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "synchronize", lambda *_: pytest.fail("something ran on the device"))
        second = spare.take_cleared((64, 128))
    assert second is not None
    assert {*map(id, second)} == {*map(id, first)}
    assert len(made) == 2
    assert not len(spare)


def test_of_two_regions_that_are_wanted_both_are_cleared_or_neither_is_taken(spare: Spare, made: list[Region]) -> None:
    small, large = spare.take_cleared((64, 128)) or pytest.fail()
    spare.give_back(small)
    spare.clear()
    spare.give_back(large)
    assert spare.take_cleared((64, 128)) is None
    assert len(spare) == 2, "the one that is clear still waits"
    assert spare.take(64) is small
    with pytest.raises(ValueError, match="twice"):
        spare.give_back(large)


def test_where_memory_ends_what_was_clear_still_waits(spare: Spare, monkeypatch: pytest.MonkeyPatch) -> None:
    (small,) = spare.take_cleared((64,)) or pytest.fail()
    spare.give_back(small)
    spare.clear()

    def full(*_: int) -> Any:
        raise CudaError("cuMemCreate", "CUDA_ERROR_OUT_OF_MEMORY")

    monkeypatch.setattr(spare, "_create", full)
    with pytest.raises(CudaError):
        spare.take_cleared((64, 128))
    assert len(spare) == 1
    assert spare.take_cleared((64,)) == [small]


def test_what_waits_can_be_freed(spare: Spare, made: list[Region]) -> None:
    regions = [spare.take(1000) for _ in range(3)]
    for region in regions[:2]:
        spare.give_back(region)
    spare.evict()
    assert [region.is_closed for region in made] == [True, True, False]
    assert not spare


def test_no_more_is_allocated_than_was_in_use_at_once(spare: Spare, made: list[Region]) -> None:
    in_use, lock = set[int](), threading.Lock()

    def serve(_: int) -> None:
        for _ in range(50):
            region = spare.take(1000)
            with lock:
                assert id(region) not in in_use, "two processes would share it"
                in_use.add(id(region))
            with lock:
                in_use.remove(id(region))
            spare.give_back(region)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(serve, range(4)))
    assert len(made) <= 4
