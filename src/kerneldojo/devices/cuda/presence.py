"""A hosted process on a GPU: its context, and the memory that it shares with the judge.

A context takes a fifth of a second and a GPU makes only some 260 a minute, so there is none before something needs it:
`open`, or hosted code that uses CUDA as it is imported, for torch then calls us (`map`) as it initialises itself.
Memory comes with `take`, before or after the context, and always before hosted code. A process that never gets any
only tries whether a source imports, and ends once that needs the device (`WANTS_DEVICE`).
"""

from __future__ import annotations

import ctypes
import gc
import os

import torch

from kerneldojo.devices.cuda import warm
from kerneldojo.devices.cuda.arena import CudaArena
from kerneldojo.devices.cuda.driver import bindings, call, enter_context
from kerneldojo.devices.cuda.page import WANTS_DEVICE, Page

LEAN_STACK_BYTES = 256
"""A thread's stack in a lean context, where the driver's default is 1024: it holds that for as many threads as run at
once, so that a lean context has 198 MiB more to spare on an H100. A kernel whose need is known when it is compiled gets
it by itself at its first launch; what calls itself, or by pointer, does not."""


class Presence:
    """One process's part of a device. Made once a process, before candidate code is imported.

    Args:
        index: of the device, among those that the process sees.
    """

    def __init__(self, index: int) -> None:
        self.heap = warm.heap()
        self.page: Page | None = None
        """What the judge says of the process; None until memory has come."""
        self._index = index
        self._fds: list[int] = []
        self._arena: CudaArena | None = None
        self._fault: BaseException | None = None
        self._is_opening = False

    def take(self, fds: list[int]) -> Page:
        """Take page, exchange, heap and, for timing, inputs, as `CudaArena.fds` lists them; `map` makes them usable."""
        self._fds = list(fds)
        self.page = Page.open(fds[0])
        return self.page

    def map(self) -> None:
        """Map the shared memory into the context that torch has just made; never raises, for torch would tell where."""
        if self.page is None:
            if not self._is_opening:
                os._exit(WANTS_DEVICE)
            return
        if self._arena is not None or self._fault is not None:
            return
        try:
            enter_context(self._index)
            arena = CudaArena.open(self._fds, self._index, self.page)
            self.heap.open(arena.heap)
            self._arena = arena
        except BaseException as fault:
            self._fault = fault

    def load_driver(self) -> None:
        """`cuInit`: half of the time until a context is there, which, unlike the other half, passes beside others'.

        Not through the bindings: a fork in which they are the first to call the driver ends in torch's initialisation
        (signal 11; torch 2.11, CUDA 13).

        Raises:
            RuntimeError: the driver refuses.
        """
        if status := ctypes.CDLL("libcuda.so.1").cuInit(0):
            raise RuntimeError(f"cuInit failed: error {status}")

    def open(self, *, is_lean: bool = False) -> None:
        """Make the context, if there is none yet, and map the shared memory into it, if that has come.

        Args:
            is_lean: whether it has `LEAN_STACK_BYTES`.

        Raises:
            RuntimeError: the driver refuses (`CudaError`), or torch does.
        """
        self._is_opening = True
        try:
            enter_context(self._index)
            if is_lean:
                call("cuCtxSetLimit", bindings().CUlimit.CU_LIMIT_STACK_SIZE, LEAN_STACK_BYTES)
            self.map()
            if self.page is None:  # It is opened ahead, when the driver has time for what will be asked later.
                warm.ask_properties(self._index)
        finally:
            self._is_opening = False
        if self._fault is not None:
            raise self._fault

    @property
    def is_mapped(self) -> bool:
        """Whether there is a context with the shared memory in it."""
        return self._arena is not None

    @property
    def arena(self) -> CudaArena:
        """Memory shared with the judge; opens the device."""
        if self._arena is None:
            self.open()
        assert self._arena is not None
        return self._arena

    def extend(self, fds: list[int], sizes: list[int]) -> bool:
        """Map timed inputs and a larger heap; `sizes` in bytes.

        Returns:
            Whether calls have needed more than the former heap: then they have a larger part of this.
        """
        has_overflowed = self.heap.statistics()["fallback_count"] > 0
        self.arena.adopt(fds, sizes)
        self._fds += fds
        self.heap.move(self.arena.heap)
        return has_overflowed

    def leave(self) -> bool:
        """Give back what libraries keep of torch's memory, begin the heap anew, and unmap the shared memory.

        Returns:
            Whether it was let go: not if anything still lies in the heap.
        """
        if self._arena is None:
            return True
        torch._C._cuda_clearCublasWorkspaces()  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        torch.backends.cuda.cufft_plan_cache.clear()
        torch.clear_autocast_cache()
        gc.collect()
        torch.cuda.synchronize(self._index)
        self.heap.settle()
        if not self.heap.leave():
            return False
        self._arena.close()
        self._arena = self.page = None
        while self._fds:
            fd = self._fds.pop()
            if self._fds:  # The first one was the page's, and went with it.
                os.close(fd)
        return True
