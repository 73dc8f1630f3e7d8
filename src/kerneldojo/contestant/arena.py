"""Memory that the judge and a contestant both see, and how tensors in it are named.

The judge allocates the memory and exports it; the contestant opens it, never the other way round. A tensor in it is
a `Slot`: offset, shape, strides, dtype. A slot that a contestant sends is a claim, so every one is checked against
the bounds of the arena before a view of it is made. Secrets never lie in an arena, and what the judge read it copies
at once: what it copied is what it compares.

This module holds the arena in host memory (a sealed memfd: its size cannot change under the judge's feet). The one in
device memory, `kerneldojo.devices.cuda`, has the same surface.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
from typing import Any, Protocol

import torch
from pydantic import BaseModel, ConfigDict, Field

ALIGNMENT = 256
MAX_DIMENSIONS = 16
MAX_NUMBER = 1 << 48
"""What sizes, strides and offsets stay below: torch counts in 64 bits, and so does what is made of them."""

DTYPES: dict[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64),
    )
}
"""The dtypes that may cross between processes, by name."""


class BadSlot(ValueError):
    """A slot does not describe memory inside its arena."""


class Slot(BaseModel):
    """A tensor in an arena. Strides count elements, the offset counts bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    offset: int = Field(ge=0)
    shape: list[int] = Field(max_length=MAX_DIMENSIONS)
    stride: list[int] = Field(max_length=MAX_DIMENSIONS)
    dtype: str

    def check(self, arena_bytes: int) -> torch.dtype:
        """Return the dtype if every element lies inside an arena of `arena_bytes`.

        Raises:
            BadSlot: in one line, what is wrong.
        """
        dtype = DTYPES.get(self.dtype)
        if dtype is None:
            raise BadSlot(f"dtype {self.dtype[:40]!r} is not supported")
        if len(self.shape) != len(self.stride):
            raise BadSlot("shape and stride differ in length")
        if any(not 0 <= number < MAX_NUMBER for number in (self.offset, *self.shape, *self.stride)):
            raise BadSlot("an offset, a size or a stride is negative or beyond all memory")
        if self.offset % dtype.itemsize:
            raise BadSlot("the offset is not aligned to the dtype")
        reached = extent(self.shape, self.stride)
        if self.offset + reached * dtype.itemsize > arena_bytes:
            raise BadSlot("the tensor does not lie inside the shared memory")
        if math.prod(self.shape) * dtype.itemsize > arena_bytes:  # One element may be expanded to any number.
            raise BadSlot("the tensor has more elements than the shared memory holds")
        return dtype


def extent(shape: list[int] | torch.Size, stride: list[int] | tuple[int, ...]) -> int:
    """Number of elements from the first to the last one that `shape` and `stride` reach; 0 if empty."""
    if any(size == 0 for size in shape):
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


def overlaps(shape: list[int] | torch.Size, stride: list[int] | tuple[int, ...]) -> bool:
    """Whether elements share memory, as those of an expanded tensor do; holes between them are none of it.

    Also true of strides that interleave, as no slice, permutation or view has them.
    """
    if any(size == 0 for size in shape):
        return False
    reach = 1
    for step, size in sorted((step, size) for size, step in zip(shape, stride, strict=True) if size != 1):
        if step < reach:
            return True
        reach += (size - 1) * step
    return False


class Arena(Protocol):
    """Shared memory, seen from one side."""

    @property
    def num_bytes(self) -> int:
        """Size of what may be packed into."""
        ...

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        ...

    @property
    def in_place(self) -> bool:
        """Whether results that lie in it already are named where they are, instead of copied to where they are read."""
        ...

    @property
    def most_told(self) -> int:
        """Bytes that one answer can describe, each of them once: no more than were ever written."""
        ...

    @property
    def is_left(self) -> bool:
        """Whether whoever it was shared with is known to be dead: then its memory may serve another."""
        ...

    def view(self, slot: Slot) -> torch.Tensor:
        """Return a tensor over the memory that `slot` names; raises `BadSlot`."""
        ...

    def close(self) -> None:
        """Give the mapping back."""
        ...


class HostArena:
    """An arena in host memory: a memfd that both sides map.

    The judge calls `HostArena.create(num_bytes)` and passes `fd` on; the contestant calls `HostArena.open(fd)`.
    """

    device = torch.device("cpu")
    in_place = False
    is_left = False

    def __init__(self, fd: int, num_bytes: int) -> None:
        self.fd = fd
        self.num_bytes = num_bytes
        self._map = mmap.mmap(fd, num_bytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self._bytes = torch.frombuffer(self._map, dtype=torch.uint8)

    @property
    def fds(self) -> list[int]:
        """Descriptors to pass on."""
        return [self.fd]

    @property
    def most_told(self) -> int:
        """The pages that exist; most of an arena is address space."""
        return os.fstat(self.fd).st_blocks * 512

    @classmethod
    def create(cls, num_bytes: int) -> HostArena:
        """Allocate `num_bytes`, zeroed, of a size that neither side can change any more."""
        fd = os.memfd_create("dojo-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, num_bytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return cls(fd, num_bytes)

    @classmethod
    def open(cls, fd: int) -> HostArena:
        """Map the arena behind a descriptor that came from the judge."""
        return cls(fd, os.fstat(fd).st_size)

    def view(self, slot: Slot) -> torch.Tensor:
        """Return a tensor over the memory that `slot` names; raises `BadSlot`."""
        dtype = slot.check(self.num_bytes)
        span = extent(slot.shape, slot.stride) * dtype.itemsize
        flat = self._bytes[slot.offset : slot.offset + span].view(dtype)
        return flat.as_strided(slot.shape, slot.stride)

    def fill(self, value: int) -> None:
        """Set every byte to `value`; 255 makes every float a NaN."""
        self._bytes.fill_(value)

    def forget(self, more_than: int = 64 << 20) -> None:
        """Give pages back if more than so many bytes of them exist; what they held reads as zero."""
        if os.fstat(self.fd).st_blocks * 512 > more_than:
            self._map.madvise(mmap.MADV_REMOVE)

    def close(self) -> None:
        """Close the descriptor; the mapping goes when the last view of it is gone."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Packer:
    """Lays tensors one after the other into a part of an arena.

    Args:
        arena: where they go.
        start: first byte that may be used.
        stop: first byte that may not.
        in_place: whether a device may name a result where it lies, if the judge can read it there.
    """

    def __init__(self, arena: Arena, start: int = 0, stop: int | None = None, *, in_place: bool = False) -> None:
        self._arena = arena
        self.offset = start
        self.in_place = in_place
        self._stop = arena.num_bytes if stop is None else stop

    def reserve(self, shape: list[int], stride: list[int], dtype: torch.dtype) -> Slot:
        """Name the next free place for such a tensor; raises `MemoryError` when it does not fit."""
        start = -(-self.offset // ALIGNMENT) * ALIGNMENT
        slot = Slot(offset=start, shape=shape, stride=stride, dtype=str(dtype).removeprefix("torch."))
        end = start + extent(shape, stride) * dtype.itemsize
        if end > self._stop:
            raise MemoryError(f"the shared memory is too small: {end} bytes needed, {self._stop} there")
        self.offset = end
        return slot

    @staticmethod
    def name(offset: int, tensor: torch.Tensor) -> Slot:
        """What names a tensor that lies in the arena already, `offset` bytes from its beginning."""
        dtype = str(tensor.dtype).removeprefix("torch.")
        return Slot(offset=offset, shape=list(tensor.shape), stride=list(tensor.stride()), dtype=dtype)

    def put(self, tensor: torch.Tensor) -> Slot:
        """Copy a tensor in, strides kept unless elements share memory, and name where it lies."""
        if tensor.numel() > extent(tensor.shape, tensor.stride()):
            tensor = tensor.contiguous()
        slot = self.reserve(list(tensor.shape), list(tensor.stride()), tensor.dtype)
        self._arena.view(slot).copy_(tensor)
        return slot


def parse_slot(value: Any) -> Slot:
    """Check what should be a slot and came from a contestant; raises `BadSlot`."""
    try:
        return Slot.model_validate(value)
    except ValueError:
        raise BadSlot("a tensor description is malformed") from None
