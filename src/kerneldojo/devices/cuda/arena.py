"""What the judge and one contestant share on the device.

Three regions: the *exchange*, where the judge lays arguments and reads packed results at offsets of its own choice;
the *inputs* of timed calls, which judge, reference runner and contestant map alike; and the *heap*, from which every
torch tensor of the contestant is allocated (`heap`), so that an output lies where the judge can read it without a copy.
A slot's offset counts through all three, in this order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Protocol

import torch

from kerneldojo.devices.cuda.memory import OutOfRegionError, SharedRegion
from kerneldojo.devices.cuda.page import Page
from kerneldojo.devices.cuda.spare import Spare


class SlotLike(Protocol):
    """What is needed of `kerneldojo.contestant.arena.Slot`."""

    @property
    def offset(self) -> int:
        """Bytes from the beginning of the exchange."""
        ...

    @property
    def shape(self) -> list[int]:
        """Sizes."""
        ...

    @property
    def stride(self) -> list[int]:
        """Strides, in elements."""
        ...

    def check(self, arena_bytes: int) -> torch.dtype:
        """Validate against a size; returns the dtype."""
        ...


class CudaArena:
    """The regions and the page of one contestant, from either side.

    The judge calls `create` and passes `fds` on, in this order; the contestant calls `open` with what came.
    """

    in_place = False
    """See `contestant.arena.Arena.in_place`; the judge's side alone knows."""
    is_left = False
    """See `contestant.arena.Arena.is_left`."""
    spare: Spare | None = None
    """Where exchange and heap came from, and go to when their process is dead."""

    def __init__(self, page: Page, regions: Sequence[SharedRegion], device: int, *, owned: int) -> None:
        self.page = page
        self.exchange, self.heap = regions[0], regions[1]
        """The heap is where new tensors are made: the last one, where there is more than one (`extend`)."""
        self.outputs_bytes = self.heap.size // 2
        """Of the heap, what outputs of timed calls may take: the rest is for weights, and for what calls need."""
        self.inputs: SharedRegion | None = regions[2] if len(regions) > 2 else None
        self.device = torch.device("cuda", device)
        self.num_bytes = self.exchange.size
        """Size of the exchange: what may be packed into."""
        self._regions = list(regions)
        self._owned = self._regions[:owned]

    @classmethod
    def create(
        cls,
        exchange_bytes: int,
        heap_bytes: int,
        *,
        device: int = 0,
        inputs: SharedRegion | None = None,
        silent: bool = False,
        owns_inputs: bool = False,
        spare: Spare | None = None,
    ) -> CudaArena:
        """Allocate; `inputs` is shared with others.

        Args:
            exchange_bytes: for arguments, and for results that are not in the heap.
            heap_bytes: for all torch tensors of the contestant. Memory beyond it comes from the driver and works,
                but its tensors are copied when they are results.
            device: CUDA device.
            inputs: region for the inputs of timed calls.
            silent: whether the candidate's own kernels are to be no-ops in this contestant.
            owns_inputs: whether `inputs` is closed with the arena, once there is one; else it stays the caller's.
            spare: memory that waits to be used again; None to allocate it.
        """
        exchange = spare.take(exchange_bytes) if spare is not None else SharedRegion.create(exchange_bytes, device)
        try:
            heap = spare.take(heap_bytes) if spare is not None else SharedRegion.create(heap_bytes, device)
        except BaseException:
            exchange.close()
            raise
        regions = [exchange, heap, *([inputs] if inputs is not None else [])]
        owned = len(regions) if owns_inputs else 2
        try:
            return cls.over(regions, device, owned=owned, silent=silent, spare=spare)
        except BaseException:
            heap.close()
            exchange.close()
            raise

    @classmethod
    def over(
        cls,
        regions: Sequence[SharedRegion],
        device: int = 0,
        *,
        owned: int = 2,
        silent: bool = False,
        spare: Spare | None = None,
    ) -> CudaArena:
        """As `create`, of regions that are there; the first `owned` of them are the arena's from now on."""
        arena = cls(Page.create(tuple(region.size for region in regions), silent=silent), regions, device, owned=owned)
        arena.spare = spare
        return arena

    @classmethod
    def open(cls, fds: Sequence[int], device: int = 0, page: Page | None = None) -> CudaArena:
        """Map what the judge exported: the page first (unless it is open already), then the regions."""
        page = page or Page.open(fds[0])
        sizes = page.region_bytes
        regions = [SharedRegion.open(fd, size, device) for fd, size in zip(fds[1:], sizes, strict=True)]
        return cls(page, regions, device, owned=len(regions))

    def extend(
        self, heap_bytes: int, inputs: SharedRegion, *, owns_inputs: bool = False
    ) -> tuple[list[int], list[int]]:
        """Add timed inputs and a larger heap, from which all new tensors come.

        Args:
            heap_bytes: of the heap.
            inputs: region for the inputs of timed calls.
            owns_inputs: as for `create`.

        Returns:
            what `adopt` needs on the other side: descriptors, and sizes.
        """
        device = self.device.index
        heap = self.spare.take(heap_bytes) if self.spare is not None else SharedRegion.create(heap_bytes, device)
        self._add(inputs, heap, [heap, inputs] if owns_inputs else [heap])
        return [fd for region in (inputs, heap) if (fd := region.fd) is not None], [inputs.size, heap.size]

    def adopt(self, fds: Sequence[int], sizes: Sequence[int]) -> None:
        """Map what `extend` added on the judge's side."""
        inputs, heap = (SharedRegion.open(fd, size, self.device.index) for fd, size in zip(fds, sizes, strict=True))
        self._add(inputs, heap, [inputs, heap])

    def _add(self, inputs: SharedRegion, heap: SharedRegion, owned: Sequence[SharedRegion]) -> None:
        self._regions += [inputs, heap]
        # Calls have fitted into the former heap: who has as much beside outputs needs no more.
        self.outputs_bytes = max(heap.size // 2, heap.size - self.heap.size)
        self.inputs, self.heap = inputs, heap
        self._owned += owned

    def leave_half(self) -> None:
        """Calls have not fitted into the former heap: half of this one is theirs."""
        self.outputs_bytes = self.heap.size // 2

    @property
    def fds(self) -> list[int]:
        """Descriptors to pass on: page, exchange, heap and, if there are any, inputs."""
        return [self.page.fd, *(region.fd for region in self._regions if region.fd is not None)]

    @property
    def total_bytes(self) -> int:
        """Upper bound of all offsets."""
        return sum(region.size for region in self._regions)

    @property
    def most_told(self) -> int:
        """See `contestant.arena.Arena.most_told`: all of a device's memory is there from the beginning."""
        return self.total_bytes

    def view(self, slot: SlotLike) -> torch.Tensor:
        """A tensor over the memory that `slot` names.

        Raises:
            OutOfRegionError: (a ValueError) unless all of it lies within one region; or whatever `slot.check` raises.
        """
        dtype = slot.check(self.total_bytes)
        region, offset = self.locate(slot.offset)
        return region.tensor(offset, tuple(slot.shape), tuple(slot.stride), dtype)

    def locate(self, offset: int) -> tuple[SharedRegion, int]:
        """The region that an offset lies in, and the offset within it."""
        for region in self._regions:
            if 0 <= offset < region.size:
                return region, offset
            offset -= region.size
        raise OutOfRegionError("an offset lies behind all shared memory")

    def base(self, region: SharedRegion) -> int:
        """Offset at which a region begins."""
        index = next(index for index, item in enumerate(self._regions) if item is region)
        return sum(item.size for item in self._regions[:index])

    def offset_of(self, address: int, length: int) -> int | None:
        """Offset of `length` bytes at a virtual address, or None if they are not all in one region."""
        start = 0
        for region in self._regions:
            if region.address <= address and address + length <= region.address + region.size:
                return start + address - region.address
            start += region.size
        return None

    def offset_in_heap(self, address: int, length: int) -> int | None:
        """Offset of `length` bytes at a virtual address, or None if they are not all in the heap."""
        offset = self.offset_of(address, length)
        base = self.base(self.heap)
        return offset if offset is not None and base <= offset < base + self.heap.size else None

    def fill(self, value: int) -> None:
        """Set every byte of exchange and heap. Of the heap only before the contestant uses it."""
        self.exchange.bytes().fill_(value)
        self.heap.bytes().fill_(value)

    def close(self) -> None:
        """Give the memory back, once. Views must not be used any more."""
        regions, self._owned = self._owned, []  # Given back twice, it would serve two at once.
        with contextlib.ExitStack() as stack:  # Each, also if the driver refuses one of them.
            for region in regions:
                stack.callback(self._part_with, region)
            self.page.close()

    def _part_with(self, region: SharedRegion) -> None:
        if self.spare is not None and self.is_left and region is not self.inputs:
            self.spare.give_back(region)
        else:
            region.close()
