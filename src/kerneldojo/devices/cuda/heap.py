"""The contestant's allocator: every torch tensor of its own lies in a region that the judge has mapped, too.

So an output lies where the judge can read it without a copy, and fresh memory holds NaN where that is asked for. The
allocator itself is C++ (`heap.cpp`), compiled once by a fork server.

Measured on an H200: `torch.empty` costs 1.6 us with this allocator and 1.8 us with torch's own. cuBLAS, cuDNN, CUDA
graphs, several streams, threads, Triton and `torch.compile` work with it; torch's memory statistics, which custom
allocators lack, are answered from the heap; `torch.compile(mode="reduce-overhead")` does not work.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import torch

from kerneldojo.devices.cuda.memory import SharedRegion

SOURCE = Path(__file__).with_name("heap.cpp")


class Heap:
    """The contestant's allocator. Install it once a process, before torch uses CUDA; then open a region for it.

    Args:
        library: path of the compiled allocator, see `compile_allocator`. Not needed any more once this is made.
    """

    def __init__(self, library: Path) -> None:
        self._library: Any = ctypes.CDLL(str(library))
        self._library.dojo_heap_open.argtypes = [ctypes.c_uint64, ctypes.c_size_t]
        self._library.dojo_heap_move.argtypes = [ctypes.c_uint64, ctypes.c_size_t]
        self._library.dojo_heap_statistics.argtypes = [ctypes.POINTER(ctypes.c_uint64)]
        self._size = 0
        memory: Any = torch.cuda.memory
        # Kept: torch holds bare pointers into it.
        self._allocator = memory.CUDAPluggableAllocator(str(library), "dojo_heap_allocate", "dojo_heap_free")
        inner = self._allocator.allocator()
        inner.set_record_stream_fn(self._address("dojo_heap_record_stream"))
        inner.set_begin_allocate_to_pool(self._address("dojo_heap_begin_pool"))
        inner.set_end_allocate_to_pool_fn(self._address("dojo_heap_end_pool"))
        inner.set_release_pool(self._address("dojo_heap_release_pool"))

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
        if self._library.dojo_heap_open(region.address, region.size):
            raise RuntimeError("the CUDA driver lacks a function that the allocator needs")
        self._size = region.size

    def poison(self, on: bool) -> None:
        """Whether memory is filled with NaN bytes as it is handed out (7 us for 64 MB on an H200, asynchronous)."""
        self._library.dojo_heap_poison(int(on))

    def reclaim(self) -> None:
        """Make memory that several streams used available again. The device must be idle."""
        self._library.dojo_heap_reclaim()

    def settle(self) -> None:
        """Merge all free memory, and forget how much was in use at most. The device must be idle.

        With nothing alive, the next tensor lies where the first one ever did.
        """
        self._library.dojo_heap_settle()

    def move(self, region: SharedRegion) -> None:
        """Allocate from another region from now on; what lies in the last one stays there. The device must be idle."""
        self._library.dojo_heap_move(region.address, region.size)
        self._size = region.size

    def leave(self) -> bool:
        """Have no region any more, until `open` gives another; False, and all is as before, if something is in use."""
        is_left = not self._library.dojo_heap_leave()
        if is_left:
            self._size = 0
        return is_left

    def statistics(self) -> dict[str, int]:
        """`live_bytes`, `peak_bytes`, `highest_bytes`, `fallback_count`, `fallback_bytes`."""
        values = (ctypes.c_uint64 * 5)()
        self._library.dojo_heap_statistics(values)
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
    """The allocator's shared library, made in `folder`; needs g++ and takes a second.

    Raises:
        RuntimeError: it does not compile (with the compiler's message).
    """
    library = folder / "heap.so"
    command = ["g++", "-O2", "-std=c++20", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the allocator does not compile:\n{done.stderr[:2000]}")
    return library
