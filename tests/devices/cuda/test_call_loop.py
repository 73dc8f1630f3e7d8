"""The loop that is timed, as far as it needs no device."""

from __future__ import annotations

import pytest
import torch

from kerneldojo.devices.cuda.calls import CallLoop


def loop(tensor: torch.Tensor) -> CallLoop:
    """One whose heap is where this tensor lies, and nothing else."""
    made = CallLoop.__new__(CallLoop)
    made._heap_start = tensor.data_ptr()
    made._heap_end = tensor.data_ptr() + tensor.nbytes
    return made


def test_an_output_that_has_no_room_is_a_lack_of_memory_and_no_lie() -> None:
    heap = torch.zeros(64)
    assert loop(heap)._placed(heap) is heap
    with pytest.raises(torch.OutOfMemoryError, match="do not fit"):
        loop(heap)._placed(torch.ones(64))
    with pytest.raises(torch.OutOfMemoryError, match="do not fit"):
        loop(heap)._placed(heap[::2])
    assert loop(heap)._placed(torch.empty(0)).numel() == 0
