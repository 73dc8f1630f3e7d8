"""The loop that is timed, as far as it needs no device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kerneldojo.contestant import tree
from kerneldojo.contestant.arena import Slot
from kerneldojo.devices.cuda import calls
from kerneldojo.devices.cuda.calls import CallLoop


def loop(tensor: torch.Tensor) -> CallLoop:
    """One whose heap is where this tensor lies, and nothing else."""
    made = CallLoop.__new__(CallLoop)
    made._heap_start = tensor.data_ptr()
    made._heap_end = tensor.data_ptr() + tensor.nbytes
    made._heap_base = 0
    made._dense = {}
    return made


def noted(made: CallLoop, output: torch.Tensor) -> tuple[int, torch.Tensor]:
    """Where it tells that an output of a call lies, and what it keeps of it."""
    told: dict[int, int] = {}
    page: Any = SimpleNamespace(put_offset=told.__setitem__)
    made._page = page
    kept: list[Any] = []
    assert made._note(0, output, kept) == 1
    return told[0], kept[0] if isinstance(kept[0], torch.Tensor) else kept[0][0]


def test_an_output_that_has_no_room_is_a_lack_of_memory_and_no_lie() -> None:
    heap = torch.zeros(64)
    assert loop(heap)._placed(heap) is heap
    with pytest.raises(torch.OutOfMemoryError, match="do not fit"):
        loop(heap)._placed(torch.ones(64))
    with pytest.raises(torch.OutOfMemoryError, match="do not fit"):
        loop(heap)._placed(heap[::2])
    assert loop(heap)._placed(torch.empty(0)).numel() == 0


def test_an_output_with_holes_is_told_as_the_judge_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference may return every second row of what it made: read as if they lay in a row, they would be wrong."""
    monkeypatch.setattr(calls, "_collect", lambda value, found, _: found.append(value))
    heap = torch.arange(64.0)
    made, rows = loop(heap), heap[:32].view(8, 4)
    for output in (rows[2:], rows.t()):  # Without holes it stays where it is, in whatever order.
        offset, kept = noted(made, output)
        assert kept is output
        assert offset == output.data_ptr() - heap.data_ptr()

    def beside(tensor: torch.Tensor) -> torch.Tensor:
        return heap[32 : 32 + tensor.numel()].view(tensor.shape).copy_(tensor)

    monkeypatch.setattr(torch.Tensor, "contiguous", beside)
    for output in (rows[::2], rows[:, 1], rows[0].expand(3, 4)):
        wanted = output.clone()
        offset, kept = noted(made, output)
        assert offset == kept.data_ptr() - heap.data_ptr() == 32 * 4
        assert torch.equal(kept, wanted)


def test_an_output_outside_of_the_heap_is_copied_in_the_order_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """A view of an input, say: the judge reads it as it lay in the rounds."""
    monkeypatch.setattr(calls, "_collect", lambda value, found, _: found.append(value))
    heap, elsewhere = torch.zeros(64), torch.arange(32.0).view(8, 4)

    def beside(tensor: torch.Tensor) -> torch.Tensor:
        return heap[: tensor.numel()].as_strided(tensor.shape, tensor.stride()).copy_(tensor)

    monkeypatch.setattr(torch.Tensor, "clone", beside)
    for output in (elsewhere, elsewhere.t()):
        offset, kept = noted(loop(heap), output)
        assert (offset, kept.stride()) == (0, output.stride())
        assert torch.equal(kept, output)


def test_outputs_may_be_as_deep_as_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    assert calls.MOST_DEPTH == tree.MAX_DEPTH
    value: Any = torch.ones(1)
    for _ in range(tree.MAX_DEPTH):
        value = [value]
    tree.encode(value, lambda _: Slot(offset=0, shape=[1], stride=[1], dtype="float32"))
    found: list[torch.Tensor] = []
    calls._collect(value, found, 0)
    assert len(found) == 1
