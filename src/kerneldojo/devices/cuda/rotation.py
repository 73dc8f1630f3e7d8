"""Many tensors rotated into many places by one launch.

New content for a round of windows is a copy and a half of each input of each call. As operations of torch that took a
millisecond of launching on a slow host, more than the device needed to write it; in one launch the host is free at
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

BLOCK = 4096
"""Words that one program moves."""
WORDS: dict[int, torch.dtype] = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}
"""As what elements are moved, by their size in bytes; those of 16 as two words."""


@dataclass(frozen=True)
class Rotation:
    """`target[(i + distance) % n] = source[i]`, for flat tensors of equal length and type on one device."""

    target: torch.Tensor
    source: torch.Tensor
    distance: int
    """Elements; less than there are."""


def rotate_all(rotations: Sequence[Rotation]) -> None:
    """Carry all of them out, in no order; equal types and lengths. Asynchronous."""
    if not rotations or not len(rotations[0].target):
        return
    first = rotations[0].target
    item = first.element_size()
    words = max(1, item // 8)
    rows = [(one.target.data_ptr(), one.source.data_ptr(), words * one.distance) for one in rotations]
    table = torch.from_numpy(np.array(rows, dtype=np.int64)).to(first.device, non_blocking=True)
    length = words * len(first)
    typed = torch.empty(0, dtype=WORDS[item], device=first.device)  # Only its type is of interest.
    kernel: Any = _rotate_kernel
    kernel[(triton.cdiv(length, BLOCK), len(rows))](table, typed, length, BLOCK=BLOCK, num_warps=8)


@triton.jit(do_not_specialize=["length"], do_not_specialize_on_alignment=["table", "typed"])
def _rotate_kernel(table: tl.tensor, typed: tl.tensor, length: tl.tensor, BLOCK: tl.constexpr) -> None:
    row = table + 3 * tl.program_id(1)
    target = tl.load(row).to(typed.dtype)
    source = tl.load(row + 1).to(typed.dtype)
    distance = tl.load(row + 2)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = at < length
    origin = at - distance
    origin = tl.where(origin < 0, origin + length, origin)
    tl.store(target + at, tl.load(source + origin, mask=there), mask=there)
