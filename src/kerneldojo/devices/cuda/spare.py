"""Device memory that has served one hosted process and waits for the next.

Allocating, exporting and mapping gigabytes is the driver's work, which it does for one process at a time while all
others wait for theirs. So what a process leaves behind is kept by the judge, which had it mapped all along. The next
process sees nothing of the last one's: memory is given back only when whoever shared it is known to be dead, and it is
cleared before it is shared again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch

from kerneldojo.devices.cuda.memory import SharedRegion


class Spare:
    """Regions of one device that wait, by size. Thread-safe.

    Never more than were in use at once: what waits is taken before anything is allocated.

    Args:
        device: CUDA device.
        create: allocates; by default `SharedRegion.create`.
    """

    def __init__(self, device: int = 0, create: Callable[[int, int], SharedRegion] = SharedRegion.create) -> None:
        self._device, self._create = device, create
        self._lock = threading.Lock()
        self._waiting: dict[int, list[SharedRegion]] = {}
        self._sizes: dict[int, int] = {}
        """What was allocated by what was asked for: the driver rounds up."""

    def take(self, size: int) -> SharedRegion:
        """A region of at least `size` bytes, with nothing in it that anybody left there. Raises `CudaError`."""
        with self._lock:
            waiting = self._waiting.get(self._sizes.get(size, -1))
            region = waiting.pop() if waiting else None
        if region is None:
            region = self._create(size, self._device)
            self._sizes[size] = region.size
            return region
        try:
            region.bytes().zero_()
            torch.cuda.synchronize(self._device)
        except BaseException:
            region.close()
            raise
        return region

    def give_back(self, region: SharedRegion) -> None:
        """Keep a region for the next one. Whoever it was shared with must be dead.

        Raises:
            ValueError: it waits already, and would serve two at once.
        """
        with self._lock:
            waiting = self._waiting.setdefault(region.size, [])
            if any(one is region for one in waiting):
                raise ValueError("a region was given back twice")
            waiting.append(region)

    def __len__(self) -> int:
        """How many wait."""
        with self._lock:
            return sum(map(len, self._waiting.values()))

    def evict(self) -> None:
        """Free all that wait."""
        with self._lock:
            regions = [region for waiting in self._waiting.values() for region in waiting]
            self._waiting.clear()
        for region in regions:
            region.close()
