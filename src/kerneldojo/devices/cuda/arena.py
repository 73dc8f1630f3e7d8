"""What the judge and one contestant share on the device, and the contestant's allocator within it.

Three regions: the *exchange*, where the judge lays arguments and reads packed results at offsets of its own choice;
the *inputs* of timed calls, which judge, reference runner and contestant map alike; and the *heap*, from which every
torch tensor of the contestant is allocated (`arena.cpp`), so that an output lies where the judge can read it without a
copy. A slot's offset counts through all three, in this order.

Measured on an H200: `torch.empty` costs 1.6 us with this allocator and 1.8 us with torch's own. cuBLAS, cuDNN, CUDA
graphs, several streams, threads, Triton and `torch.compile` work with it; torch's memory statistics, which custom
allocators lack, are answered from the heap; `torch.compile(mode="reduce-overhead")` does not work.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from kerneldojo.devices.cuda.driver import call
from kerneldojo.devices.cuda.memory import OutOfRegionError, SharedRegion
from kerneldojo.devices.cuda.page import Page
from kerneldojo.devices.cuda.spare import Spare

SOURCE = Path(__file__).with_name("arena.cpp")


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
        self.inputs, self.heap = inputs, heap
        self._owned += owned

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


class Heap:
    """The contestant's allocator. Install it once a process, before torch uses CUDA; then open a region for it.

    Args:
        library: path of the compiled allocator, see `compile_allocator`.
    """

    def __init__(self, library: Path) -> None:
        self._library: Any = ctypes.CDLL(str(library))
        self._library.dojo_arena_open.argtypes = [ctypes.c_uint64, ctypes.c_size_t]
        self._library.dojo_arena_move.argtypes = [ctypes.c_uint64, ctypes.c_size_t]
        self._library.dojo_arena_statistics.argtypes = [ctypes.POINTER(ctypes.c_uint64)]
        self._size = 0
        memory: Any = torch.cuda.memory
        # Kept: torch holds bare pointers into it.
        self._allocator = memory.CUDAPluggableAllocator(str(library), "dojo_arena_allocate", "dojo_arena_free")
        inner = self._allocator.allocator()
        inner.set_record_stream_fn(self._address("dojo_arena_record_stream"))
        inner.set_begin_allocate_to_pool(self._address("dojo_arena_begin_pool"))
        inner.set_end_allocate_to_pool_fn(self._address("dojo_arena_end_pool"))
        inner.set_release_pool(self._address("dojo_arena_release_pool"))

    def install(self) -> None:
        """Make it torch's allocator. Touches no device, so that a fork server may do it."""
        memory: Any = torch.cuda.memory
        memory.change_current_allocator(self._allocator)
        for module in (torch.cuda.memory, torch.cuda):
            target: Any = module
            target.memory_stats = self._memory_stats
            target.memory_allocated = lambda device=None: self.statistics()["live_bytes"]
            target.max_memory_allocated = lambda device=None: self.statistics()["peak_bytes"]
            target.memory_reserved = target.max_memory_reserved = lambda device=None: self._size
            target.reset_peak_memory_stats = lambda device=None: None
            target.reset_accumulated_memory_stats = lambda device=None: None

    def open(self, region: SharedRegion) -> None:
        """Allocate from `region` from now on."""
        if self._library.dojo_arena_open(region.address, region.size):
            raise RuntimeError("the CUDA driver lacks a function that the allocator needs")
        self._size = region.size

    def poison(self, on: bool) -> None:
        """Whether memory is filled with NaN bytes as it is handed out (7 us for 64 MB on an H200, asynchronous)."""
        self._library.dojo_arena_poison(int(on))

    def reclaim(self) -> None:
        """Make memory that several streams used available again. The device must be idle."""
        self._library.dojo_arena_reclaim()

    def settle(self) -> None:
        """Merge all free memory, and forget how much was in use at most. The device must be idle.

        With nothing alive, the next tensor lies where the first one ever did.
        """
        self._library.dojo_arena_settle()

    def move(self, region: SharedRegion) -> None:
        """Allocate from another region from now on; what lies in the last one stays there. The device must be idle."""
        self._library.dojo_arena_move(region.address, region.size)
        self._size = region.size

    def leave(self) -> bool:
        """Have no region any more, until `open` gives another; False, and all is as before, if something is in use."""
        is_left = not self._library.dojo_arena_leave()
        if is_left:
            self._size = 0
        return is_left

    def statistics(self) -> dict[str, int]:
        """`live_bytes`, `peak_bytes`, `highest_bytes`, `fallback_count`, `fallback_bytes`."""
        values = (ctypes.c_uint64 * 5)()
        self._library.dojo_arena_statistics(values)
        names = ("live_bytes", "peak_bytes", "highest_bytes", "fallback_count", "fallback_bytes")
        return dict(zip(names, (int(value) for value in values), strict=True))

    def _memory_stats(self, _: Any = None) -> dict[str, int]:
        live, peak = self.statistics()["live_bytes"], self.statistics()["peak_bytes"]
        return {
            "allocated_bytes.all.current": live,
            "allocated_bytes.all.peak": peak,
            "reserved_bytes.all.current": self._size,
            "reserved_bytes.all.peak": self._size,
        }

    def _address(self, name: str) -> int:
        return int(ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value or 0)


def compile_allocator(folder: Path) -> Path:
    """The allocator's shared library in `folder`, compiled if it is not there; needs g++ and takes a second.

    Raises:
        RuntimeError: it does not compile (with the compiler's message).
    """
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    library = folder / f"arena-{digest}.so"
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    temporary = library.with_suffix(f".{os.getpid()}")
    command = ["g++", "-O2", "-std=c++20", "-shared", "-fPIC", "-o", str(temporary), str(SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the allocator does not compile:\n{done.stderr[:2000]}")
    temporary.replace(library)
    return library


def enter_context(device: int = 0) -> None:
    """Make the device's primary context current, as torch does, before anything is mapped into it."""
    torch.cuda.init()
    torch.cuda.set_device(device)
    call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", device)))
