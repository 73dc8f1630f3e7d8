"""Whether tensors still hold the bits that they held, without a copy of large ones.

A result may fill a good part of a device. So what is kept of a large one is a sum of its words, each times a secret
random number of 64 bits, modulo 2^64: two tensors that differ have the same sum with a chance of 2^-33 at most.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kerneldojo.problems.pieces import pieces

LARGE_BYTES = 1 << 28
"""Tensors from this size on are not kept."""
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int32, 16: torch.int32}
"""As what a tensor's elements are read, by their size in bytes: longer words would hide their upper bits."""


@dataclass(frozen=True)
class Fingerprint:
    """Of one tensor, under the random numbers of a seed."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    total: int


@dataclass(frozen=True)
class Remembered:
    """Some tensors at one time; made by `remember`."""

    kept: tuple[torch.Tensor | Fingerprint, ...]
    seed: int

    def equals(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether these have the same shapes, types and bits, NaNs included; strides do not matter."""
        return len(tensors) == len(self.kept) and all(
            fingerprint(now, self.seed) == then if isinstance(then, Fingerprint) else _same_bytes(now, then)
            for then, now in zip(self.kept, tensors, strict=True)
        )


def remember(tensors: Sequence[torch.Tensor], large_bytes: int = LARGE_BYTES) -> Remembered:
    """Keep what tells whether others are as these are; small ones themselves, which nobody may write to then."""
    seed = secrets.randbits(62)
    large = [tensor.nbytes >= large_bytes for tensor in tensors]
    pairs = zip(tensors, large, strict=True)
    return Remembered(tuple(fingerprint(one, seed) if is_large else one for one, is_large in pairs), seed)


def fingerprint(tensor: torch.Tensor, seed: int) -> Fingerprint:
    """The sum of a tensor's words, each times a random number under `seed`, in logical order."""
    words = tensor.contiguous().reshape(-1).view(WORDS[tensor.element_size()])
    return Fingerprint(tuple(tensor.shape), tensor.dtype, _total(words, seed))


def _total(words: torch.Tensor, seed: int) -> int:
    if words.is_cuda:
        from kerneldojo.judging import word_sums  # Imports Triton.

        if word_sums.is_right(words.device, words.dtype):
            return word_sums.word_sum(words, seed)
    generator = torch.Generator(words.device).manual_seed(seed)
    total = 0
    for (some,) in pieces(words):
        factors = torch.empty(len(some), dtype=torch.int64, device=some.device)
        factors.random_(-(1 << 63), None, generator=generator)
        total += int((factors * some).sum())
    return total % (1 << 64)


def _same_bytes(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return torch.equal(_bits(left), _bits(right))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)
