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


def loop(tensor: torch.Tensor, *strides: tuple[int, ...]) -> CallLoop:
    """One whose heap is where this tensor lies, and nothing else; the judge reads outputs by these strides."""
    made = CallLoop.__new__(CallLoop)
    made._heap_start = tensor.data_ptr()
    made._heap_end = tensor.data_ptr() + tensor.nbytes
    made._heap_base = 0
    made._strides, made._plain, made._seen = strides, set(), {}
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
    made = loop(heap, (1,))
    assert made._placed(0, heap) is heap
    for without_room in (torch.ones(64), heap[::2]):
        with pytest.raises(torch.OutOfMemoryError, match="do not fit"):
            made._placed(0, without_room)
    assert made._placed(0, torch.empty(0)).numel() == 0


def test_an_output_is_told_as_the_judge_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference may return every second row of what it made: read as if they lay in a row, they would be wrong. And
    who returns the transposed of what the reference returns pays for bringing it into order."""
    monkeypatch.setattr(calls, "_collect", lambda value, found, _: found.append(value))
    heap = torch.arange(64.0)
    rows = heap[:32].view(8, 4)

    def beside(*_: Any, **__: Any) -> torch.Tensor:
        return heap[32 : 32 + wanted.numel()].as_strided(wanted.shape, wanted.stride())

    monkeypatch.setattr(torch, "empty_strided", beside)
    for output in (rows[2:], rows.t(), rows[:1], rows[:, 1:2].expand(8, 1)[:1]):  # In order it stays where it is.
        for _ in range(2):
            offset, kept = noted(loop(heap, output.stride()), output)
            assert kept is output
            assert offset == output.data_ptr() - heap.data_ptr()
    for output in (rows[::2], rows[:, 1], rows[0].expand(3, 4), rows.t()):
        wanted = output.clone(memory_format=torch.contiguous_format)
        offset, kept = noted(loop(heap, wanted.stride()), output)
        assert offset == kept.data_ptr() - heap.data_ptr() == 32 * 4
        assert kept.stride() == wanted.stride()
        assert torch.equal(kept, wanted)
    wanted = rows.t().contiguous().t()  # It lies plainly, where it did not in the rounds.
    offset, kept = noted(loop(heap, wanted.stride()), rows)
    assert (offset, kept.stride()) == (32 * 4, (1, 8))
    assert torch.equal(kept, rows)


def test_what_nobody_expects_is_told_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    """One output more, or of other dimensions, than in the rounds: the judge refuses it for that."""
    heap = torch.arange(64.0)

    def beside(tensor: torch.Tensor) -> torch.Tensor:
        return heap[: tensor.numel()].view(tensor.shape).copy_(tensor)

    monkeypatch.setattr(torch.Tensor, "contiguous", beside)
    monkeypatch.setattr(calls, "_collect", lambda value, found, _: found.append(value))
    elsewhere = torch.arange(32.0).view(8, 4)
    for made in (loop(heap), loop(heap, (1,))):
        offset, kept = noted(made, elsewhere.t())
        assert (offset, kept.stride()) == (0, (8, 1))
        assert torch.equal(kept, elsewhere.t())


def test_an_output_outside_of_the_heap_is_copied_in_the_order_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """A view of an input, say: the judge reads it as it lay in the rounds, where the reference's lies so as well."""
    monkeypatch.setattr(calls, "_collect", lambda value, found, _: found.append(value))
    heap, elsewhere = torch.zeros(64), torch.arange(32.0).view(8, 4)

    def beside(tensor: torch.Tensor) -> torch.Tensor:
        return heap[: tensor.numel()].as_strided(tensor.shape, tensor.stride()).copy_(tensor)

    monkeypatch.setattr(torch.Tensor, "clone", beside)
    for output in (elsewhere, elsewhere.t()):
        offset, kept = noted(loop(heap, output.stride()), output)
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
