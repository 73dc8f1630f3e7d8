"""Counting what one launch does: arithmetic as it happens, memory by which addresses were touched."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt

from kerneldojo.devices.work import SECTOR_BYTES, Flops, Precision, Traffic

Array = npt.NDArray[Any]


class Region:
    """A range of memory that a launch may touch, with one flag for each element of a given size."""

    def __init__(self, storage: int, start: int, num_bytes: int) -> None:
        self.storage = storage
        self.start = start
        self.stop = start + num_bytes
        self.touched: dict[tuple[str, int], Array] = {}

    def touch(self, direction: str, addresses: Array, size: int) -> None:
        """Flag elements of `size` bytes at `addresses`, all within the region."""
        flags = self.touched.get((direction, size))
        if flags is None:
            flags = np.zeros((self.stop - self.start) // size + 1, dtype=np.bool_)
            self.touched[direction, size] = flags
        flags[(addresses - np.uint64(self.start)) // np.uint64(size)] = True

    def distinct_bytes(self, direction: str) -> int:
        """Bytes touched, each counted once (an element read in two sizes counts for both, up to the region)."""
        total = sum(int(f.sum()) * size for (d, size), f in self.touched.items() if d == direction)
        return min(total, self.stop - self.start)


class Tally:
    """Counters of one launch.

    Args:
        regions: the memory of its arguments.
        outside: storages that hold, as it begins, what no counted work wrote (`ledger`).
    """

    def __init__(self, regions: list[Region], outside: frozenset[int] = frozenset()) -> None:
        self._regions = regions
        self.outside = outside
        self.elsewhere: dict[str, set[int]] = {"read": set(), "write": set()}
        """Addresses touched that lie in no argument's memory."""
        self.accessed_bytes = 0
        self.operand_bytes = 0
        self.arithmetic = 0
        self.special = 0
        self.products: dict[Precision, int] = defaultdict(int)

    def operation(self, num_elements: int, cost: int = 1, *, special: bool = False) -> None:
        """Count floating-point operations on `num_elements` elements."""
        self.arithmetic += cost * num_elements
        if special:
            self.special += num_elements

    def product(self, precision: Precision, flops: int, operand_bytes: int) -> None:
        """Count one multiplication of matrices."""
        self.products[precision] += flops
        self.operand_bytes += operand_bytes

    def memory(self, direction: str, pointers: Array, mask: Array | None, size: int) -> None:
        """Count one access of a block: `pointers` are addresses in bytes, `size` is that of an element."""
        addresses = np.ravel(pointers) if mask is None else pointers[np.broadcast_to(mask, pointers.shape)]
        if not addresses.size:
            return
        low, high = int(addresses.min()), int(addresses.max())
        self.accessed_bytes += _num_sectors(addresses, low, high) * SECTOR_BYTES
        for region in self._regions:
            if region.start <= low and high < region.stop:
                region.touch(direction, addresses, size)
                return
        for region in self._regions:
            inside = (addresses >= region.start) & (addresses < region.stop)
            if inside.any():
                region.touch(direction, addresses[inside], size)
                addresses = addresses[~inside]
        self.elsewhere[direction].update((addresses // np.uint64(size) * np.uint64(size)).tolist())

    def traffic(self, direction: str) -> tuple[Traffic, ...]:
        """Distinct bytes by storage; memory that belongs to no argument is the last storage, number 2^40."""
        found: dict[int, int] = defaultdict(int)
        for region in self._regions:
            num_bytes = region.distinct_bytes(direction)
            if num_bytes:
                found[region.storage] += num_bytes
        if self.elsewhere[direction]:
            found[1 << 40] += 4 * len(self.elsewhere[direction])
        return tuple(Traffic(storage=storage, num_bytes=count) for storage, count in sorted(found.items()))

    def flops(self) -> tuple[Flops, ...]:
        """FLOPs of products by class."""
        return tuple(Flops(precision=p, flops=float(count)) for p, count in sorted(self.products.items()))


def _num_sectors(addresses: Array, low: int, high: int) -> int:
    """How many distinct sectors one access of a block touches."""
    first = low // SECTOR_BYTES
    span = high // SECTOR_BYTES - first + 1
    if span == 1:
        return 1
    sectors = addresses // np.uint64(SECTOR_BYTES)
    if span <= 1 << 22:
        flags = np.zeros(span, dtype=np.bool_)
        flags[sectors - np.uint64(first)] = True
        return int(np.count_nonzero(flags))
    return int(np.unique(sectors).size)
