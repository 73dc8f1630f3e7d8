"""Whether memory still holds what a rotation wrote there, told by one launch.

A candidate can write to the inputs of its timed calls, which the reference meets afterwards. So the judge looks at one
call's in each round, while everybody waits; as operations of torch that was twenty launches.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

from kerneldojo.devices.cuda.rotation import BLOCK, Rotation, arguments, rotate, rotated_words, rows, samples
from kerneldojo.devices.cuda.tried import is_proven


def can_compare(rotation: Rotation) -> bool:
    """Whether `compare` may be used: on a GPU, where it was right when it was tried."""
    target = rotation.target
    return target.is_cuda and bool(len(target)) and is_right(target.device, target.element_size())


def compare(rotation: Rotation, found: torch.Tensor) -> None:
    """Set `found`, an int32 on the device, to 1 if the target holds anything else than the rotation. Asynchronous."""
    table, typed, length = arguments(rows([rotation]), rotation.target)
    kernel: Any = _compare_kernel
    kernel[(triton.cdiv(length, BLOCK),)](table, typed, found, length, BLOCK=BLOCK, num_warps=8)


@cache
def is_right(device: torch.device, item: int) -> bool:
    """Whether it sees each of some changes to elements of so many bytes, and none where there is none."""
    return is_proven(lambda: all(map(_sees, samples(device, item))), "inputs are compared by torch's operations")


def _sees(rotation: Rotation) -> bool:
    rotate(rotation)
    target, last = rotation.target, len(rotation.target) - 1
    changes = [found] = [torch.zeros((), dtype=torch.int32, device=target.device)]
    compare(rotation, found)
    for place in (0, BLOCK - 1, BLOCK, last // 2, last):
        kept = target[place].clone()
        target[place] += 1
        changes.append(torch.zeros_like(found))
        compare(rotation, changes[-1])
        target[place] = kept
    return torch.stack(changes).tolist() == [0, 1, 1, 1, 1, 1]


@triton.jit(do_not_specialize=["length"], do_not_specialize_on_alignment=["table", "typed", "found"])
def _compare_kernel(
    table: tl.tensor, typed: tl.tensor, found: tl.tensor, length: tl.tensor, BLOCK: tl.constexpr
) -> None:
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = at < length
    now = tl.load(tl.load(table).to(typed.dtype) + at, mask=there)
    is_other = there & (now != rotated_words(table, typed, at, length))
    if tl.max(is_other.to(tl.int32), axis=0) > 0:
        tl.store(found, 1)
