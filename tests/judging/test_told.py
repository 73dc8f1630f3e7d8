"""What a hosted process tells is looked at before it is used: wrong kinds are tampering, never a fault of ours."""

from __future__ import annotations

import pytest
import torch

from kerneldojo.contestant.arena import BadSlot, HostArena, Packer, Slot
from kerneldojo.judging.ends import Failed, Tampered, failed, readable, seconds_of
from kerneldojo.judging.hosted import Copier, take_named
from kerneldojo.judging.pricing import told_kernels
from kerneldojo.judging.ruling import in_source
from kerneldojo.judging.verdict import MAX_KERNELS
from kerneldojo.schema import Evaluation, KernelTime, Status


@pytest.mark.parametrize("claim", ["soon", [1], {}, True, -1.0, float("nan"), float("inf"), 10**400])
def test_a_duration_is_a_number_of_seconds(claim: object) -> None:
    with pytest.raises(Tampered):
        seconds_of(claim)
    assert seconds_of(None) == 0.0
    assert seconds_of(2) == 2.0


def test_a_failure_can_be_written_down_whatever_it_says() -> None:
    end = failed({"kind": "runtime_error", "text": "\ud800\u202e\x1b[2J\nline", "line": 1}, None)
    assert isinstance(end, Failed)
    assert end.text == "???[2J\nline"
    Evaluation(status=Status.RUNTIME_ERROR, message=end.text).model_dump_json()
    assert readable(["a"], 3) == "['a"


def test_more_than_was_written_is_not_copied() -> None:
    arena = HostArena.create(1 << 30)
    slot = Packer(arena).put(torch.ones(256, 256))
    copier = Copier(arena)
    assert torch.equal(copier(slot), torch.ones(256, 256))
    with pytest.raises(BadSlot):
        copier(slot)
    with pytest.raises(BadSlot):
        Copier(arena)(Slot(offset=0, shape=[1 << 27], stride=[1], dtype="float32"))


@pytest.mark.parametrize("name", ["x" * 2000, ["x"], 1, None])
def test_a_tensors_name_is_one_that_a_command_can_repeat(name: object) -> None:
    arena = HostArena.create(1 << 20)
    slot = Packer(arena).put(torch.ones(3)).model_dump()
    assert list(take_named(arena, [["x", slot]])) == ["x"]
    with pytest.raises(Tampered):
        take_named(arena, [[name, slot]])


@pytest.mark.parametrize("pairs", [None, 5, [["x"]], [["x", {}]], [["x", 1, 2]]])
def test_a_state_is_a_list_of_names_and_slots(pairs: object) -> None:
    with pytest.raises(Tampered):
        take_named(HostArena.create(1 << 20), pairs)


def test_a_kernel_is_named_only_as_its_source_names_it() -> None:
    source = "def outer():\n    def kernel(): ..."
    assert in_source("outer.<locals>.kernel", source) == "outer.<locals>.kernel"
    assert in_source("kernel 0.5", source) == in_source("kernel_3", source) == ""


def test_a_verdict_lists_the_kernels_that_take_longest() -> None:
    kernels = [KernelTime(name=f"k{i}\u202e", device_ms=float(i)) for i in range(2 * MAX_KERNELS)]
    told = told_kernels(kernels)
    assert [kernel.name for kernel in told] == [f"k{i}?" for i in range(MAX_KERNELS, 2 * MAX_KERNELS)]
