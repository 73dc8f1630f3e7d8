"""On a GPU: the sum of a tensor's words, each times a secret random number, in one pass over it.

By torch's operations random numbers are written to memory and read again, some forty bytes for a word of four, and each
piece is waited for: of 6 GiB that takes 30 ms, and a verdict on such a problem asks two dozen times. One kernel makes
the numbers where it needs them. They are those of a counter under a secret key (Philox): nobody can know them, and they
are the same for equal places of tensors of whatever address.

The kernel is tried once, with elements of each size, before it is believed; where it is not right, torch does it.
"""

from __future__ import annotations

import secrets
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

from kerneldojo.devices.cuda.tried import is_proven

SPLIT = 1 << 14
"""Words that one program sums."""
BLOCK = 512
"""Of these, so many are numbered by one draw of four numbers each: two for a word, so it draws for as many more."""


def word_sum(words: torch.Tensor, seed: int) -> int:
    """The sum modulo 2^64.

    Args:
        words: flat integers of 1, 2 or 4 bytes, on a GPU.
        seed: the key, of 62 bits.
    """
    count = len(words)
    if not count:
        return 0
    programs = -(-count // SPLIT)
    sums = torch.empty(programs, dtype=torch.int64, device=words.device)
    kernel: Any = _sum_kernel
    kernel[(programs,)](words, sums, count, seed, BLOCK=BLOCK, SPLIT=SPLIT, num_warps=4)
    return int(sums.sum()) % (1 << 64)


@cache
def is_right(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether it weighs words of a type as it should there; if not, that is told to the log."""
    return is_proven(lambda: _weighs_each(device, dtype), "fingerprints are taken by torch's operations")


def _weighs_each(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether each of some words has a weight of its own, and sums of them are what these make of them."""
    count, seed = 2 * SPLIT + 3, secrets.randbits(62)
    places = [0, 1, BLOCK - 1, BLOCK, 2 * BLOCK, SPLIT - 1, SPLIT, SPLIT + BLOCK, 2 * SPLIT, count - 1]
    words = torch.zeros(count, dtype=dtype, device=device)
    if word_sum(words, seed):
        return False
    weights = []
    for place in places:
        words[place] = 1
        weights.append(word_sum(words, seed))
        words[place] = 0
    values = [number + 3 if dtype == torch.uint8 or number % 2 else -number - 3 for number in range(len(places))]
    for place, value in zip(places, values, strict=True):
        words[place] = value
    total = sum(weight * value for weight, value in zip(weights, values, strict=True)) % (1 << 64)
    are_drawn = len({*weights, 0}) == len(weights) + 1 and max(weights) >> 60 > 0
    return are_drawn and word_sum(words, seed) == total and word_sum(words, seed ^ 1) != total


@triton.jit(do_not_specialize=["count", "seed"], do_not_specialize_on_alignment=["words"])
def _sum_kernel(
    words: tl.tensor, sums: tl.tensor, count: tl.tensor, seed: tl.tensor, BLOCK: tl.constexpr, SPLIT: tl.constexpr
) -> None:
    first = tl.program_id(0).to(tl.int64) * SPLIT
    total = tl.zeros([BLOCK], tl.int64)
    for start in range(0, SPLIT, 2 * BLOCK):
        at = first + start + tl.arange(0, BLOCK)
        one_high, one_low, two_high, two_low = tl.randint4x(seed, at)  # pyright: ignore[reportGeneralTypeIssues]
        one = (one_high.to(tl.uint64) << 32) | one_low.to(tl.uint64)
        two = (two_high.to(tl.uint64) << 32) | two_low.to(tl.uint64)
        word = tl.load(words + at, at < count, other=0).to(tl.int64)
        next_word = tl.load(words + at + BLOCK, at + BLOCK < count, other=0).to(tl.int64)
        total += word * one.to(tl.int64) + next_word * two.to(tl.int64)
    tl.store(sums + tl.program_id(0), tl.sum(total, axis=0))
