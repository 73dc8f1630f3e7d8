"""Device memory that has served one hosted process and waits for the next.

Allocating, exporting and mapping gigabytes is the driver's work, which it does for one process at a time while all
others wait for theirs. So what a process leaves behind is kept by the judge, which had it mapped all along. The next
process sees nothing of the last one's: memory is given back only when whoever shared it is known to be dead, and it is
cleared before it is shared again. Clearing is the device's work, so whoever takes memory while somebody else is timed
takes what was cleared before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

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
        """As they were left, by size."""
        self._cleared: dict[int, list[SharedRegion]] = {}
        self._sizes: dict[int, int] = {}
        """What was allocated by what was asked for: the driver rounds up."""

    def take(self, size: int) -> SharedRegion:
        """A region of at least `size` bytes, with nothing in it that anybody left there. Raises `CudaError`."""
        with self._lock:
            if (region := self._cleared_one(size)) is not None:
                return region
            waiting = self._waiting.get(self._sizes.get(size, -1))
            region = waiting.pop() if waiting else None
        if region is None:
            return self._new(size)
        self._wipe([region])
        return region

    def take_cleared(self, sizes: Sequence[int]) -> list[SharedRegion] | None:
        """One region for each size, for which nothing runs on the device; None if they are still to be cleared.

        Raises:
            CudaError: there is no memory left.
        """
        with self._lock:
            taken = [self._cleared_one(size) for size in sizes]
            waits = any(self._waiting.get(self._sizes.get(size, -1)) for size in sizes)
            if waits and None in taken:
                for region in taken:
                    self._keep(self._cleared, region)
                return None
        found: list[SharedRegion] = []
        try:
            for size, region in zip(sizes, taken, strict=True):
                found.append(region or self._new(size))
        except BaseException:
            with self._lock:
                for region in {*found, *taken}:
                    self._keep(self._cleared, region)
            raise
        return found

    def clear(self) -> None:
        """Clear all that wait. Only while nobody else is timed."""
        with self._lock:
            regions = [region for waiting in self._waiting.values() for region in waiting]
            self._waiting.clear()
        self._wipe(regions)
        with self._lock:
            for region in regions:
                self._keep(self._cleared, region)

    def _cleared_one(self, size: int) -> SharedRegion | None:
        cleared = self._cleared.get(self._sizes.get(size, -1))
        return cleared.pop() if cleared else None

    @staticmethod
    def _keep(where: dict[int, list[SharedRegion]], region: SharedRegion | None) -> None:
        if region is not None:
            where.setdefault(region.size, []).append(region)

    def _new(self, size: int) -> SharedRegion:
        region = self._create(size, self._device)
        self._sizes[size] = region.size
        return region

    def _wipe(self, regions: Sequence[SharedRegion]) -> None:
        if not regions:
            return
        try:
            for region in regions:
                region.bytes().zero_()
            torch.cuda.synchronize(self._device)
        except BaseException:
            for region in regions:
                region.close()
            raise

    def give_back(self, region: SharedRegion) -> None:
        """Keep a region for the next one. Whoever it was shared with must be dead.

        Raises:
            ValueError: it waits already, and would serve two at once.
        """
        with self._lock:
            known = [*self._waiting.get(region.size, ()), *self._cleared.get(region.size, ())]
            if any(one is region for one in known):
                raise ValueError("a region was given back twice")
            self._keep(self._waiting, region)

    def __len__(self) -> int:
        """How many wait."""
        with self._lock:
            return sum(map(len, [*self._waiting.values(), *self._cleared.values()]))

    def evict(self) -> None:
        """Free all that wait."""
        with self._lock:
            regions = [one for kept in (self._waiting, self._cleared) for alike in kept.values() for one in alike]
            self._waiting.clear()
            self._cleared.clear()
        for region in regions:
            region.close()
