"""Many tensors rotated into many places by one launch.

New content for a round of windows is a copy and a half of each input of each call. As operations of torch that took a
millisecond of launching on a slow host, more than the device needed to write it; in one launch the host is free at
once. What the launch does is held against torch's own operations once for each size of element, before it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from kerneldojo.devices.cuda.draws import Integers
from kerneldojo.devices.cuda.tried import is_proven

BLOCK = 4096
"""Words that one program moves."""
WORDS: dict[int, torch.dtype] = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}
"""As what elements are moved, by their size in bytes; those of 16 as two words."""


@dataclass(frozen=True)
class Rotation:
    """`target[(i + distance) % n] = source[i]`, for flat tensors of equal length and type on one device; and then
    `target[begin + i] = other[origin + i]` for `length` elements."""

    target: torch.Tensor
    source: torch.Tensor
    distance: int
    """Elements; less than there are."""
    other: torch.Tensor | None = None
    """Where a part is from; None for none. As long as the source."""
    begin: int = 0
    origin: int = 0
    length: int = 0


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """The memory from a tensor's first element to its last."""
    count = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((count if tensor.numel() else 0,), (1,))


def can_launch(target: torch.Tensor) -> bool:
    """Whether what is rotated into this and its like may be by `launch`: on a GPU, where it was right when tried."""
    return target.is_cuda and bool(len(target)) and is_right(target.device, target.element_size())


def rotate(one: Rotation) -> None:
    """One rotation, by torch's operations."""
    target, source, distance = one.target, one.source, one.distance
    if distance:
        target[distance:].copy_(source[:-distance], non_blocking=True)
        target[:distance].copy_(source[-distance:], non_blocking=True)
    else:
        target.copy_(source, non_blocking=True)
    if one.other is not None:
        part = one.other[one.origin : one.origin + one.length]
        target[one.begin : one.begin + one.length].copy_(part, non_blocking=True)


@cache
def is_right(device: torch.device, item: int) -> bool:
    """Whether the launch does what it should with elements of so many bytes; if not, that is told to the log."""
    return is_proven(lambda: _rotates(samples(device, item)), "content for windows is written by torch's operations")


def _rotates(wanted: list[Rotation]) -> bool:
    launch(rows(wanted), wanted[0].target)
    right = [replace(one, target=torch.empty_like(one.target)) for one in wanted]
    for one in right:
        rotate(one)
    return all(torch.equal(one.target, two.target) for one, two in zip(wanted, right, strict=True))


def samples(device: torch.device, item: int) -> list[Rotation]:
    """Rotations of every kind, of elements of so many bytes, by which a launch is tried; nothing is written yet."""
    words = torch.arange(3 * (BLOCK + 3), device=device).to(WORDS[item]).repeat_interleave(max(1, item // 8))
    source = words.view(torch.complex128) if item == 16 else words
    other, last = source.roll(7), len(source) - 1
    found = [Rotation(torch.empty_like(source), source, distance) for distance in (0, 1, BLOCK, last)]
    found += [Rotation(torch.empty_like(source), source, last, other, *part) for part in ((0, 3, 5), (9, 1, last - 9))]
    return found


def launch(rows: Integers, target: torch.Tensor) -> None:
    """Carry out all that `rows` says, in no order; `target` is one of the targets. Asynchronous on a GPU."""
    table, typed, length = arguments(rows, target)
    kernel: Any = _rotate_kernel
    kernel[(triton.cdiv(length, BLOCK), len(rows))](table, typed, length, BLOCK=BLOCK, num_warps=8)


def num_words(item_bytes: int) -> int:
    """As how many words an element is moved."""
    return max(1, item_bytes // 8)


def rows(rotations: Sequence[Rotation]) -> Integers:
    """What a launch is told of rotations of one type and length.

    Returns:
        (rotations, 7): addresses of target and source, by how many words to move, the address of the source of a part,
        words from where to where that is, and how much further on the words lie there.
    """
    words = num_words(rotations[0].target.element_size())
    found = [
        (
            one.target.data_ptr(),
            one.source.data_ptr(),
            words * one.distance,
            (one.source if one.other is None else one.other).data_ptr(),
            words * one.begin,
            words * (one.begin + one.length),
            words * (one.origin - one.begin),
        )
        for one in rotations
    ]
    return np.array(found, dtype=np.int64)


def arguments(rows: Integers, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
    """The same on the device, a tensor of words, of which only the type is of interest, and how many words each has."""
    item = target.element_size()
    table = torch.from_numpy(rows).to(target.device, non_blocking=True)
    return table, torch.empty(0, dtype=WORDS[item], device=target.device), num_words(item) * len(target)


@triton.jit(do_not_specialize=["length"], do_not_specialize_on_alignment=["table", "typed"])
def _rotate_kernel(table: tl.tensor, typed: tl.tensor, length: tl.tensor, BLOCK: tl.constexpr) -> None:
    row = table + 7 * tl.program_id(1)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(tl.load(row).to(typed.dtype) + at, rotated_words(row, typed, at, length), mask=at < length)


@triton.jit
def rotated_words(row: tl.tensor, typed: tl.tensor, at: tl.tensor, length: tl.tensor) -> tl.tensor:
    """What a rotation has at `at`; `row` is its row of the table."""
    source = tl.load(row + 1).to(typed.dtype)
    distance = tl.load(row + 2)
    other = tl.load(row + 3).to(typed.dtype)
    begin, end, beyond = tl.load(row + 4), tl.load(row + 5), tl.load(row + 6)
    there = at < length
    is_part = (begin <= at) & (at < end)
    origin = at - distance
    origin = tl.where(origin < 0, origin + length, origin)
    rotated = tl.load(source + origin, mask=there & (is_part == 0))
    part = tl.load(other + at + beyond, mask=there & is_part)
    return tl.where(is_part, part, rotated)
