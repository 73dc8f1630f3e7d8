"""Huge pages for what a fork server holds, so that a fork copies a hundred page table entries instead of 60 000.

Forking and ending a process takes time in proportion to the pages that it maps, and a fork server with torch and
Triton imported has some 240 MB of its own. `MADV_COLLAPSE` (Linux 6.1) turns whatever it has into pages of 2 MiB, now
and without asking for more later. A fork that writes to such a page splits its own table and copies 4 KiB, as before.
Where the kernel refuses, forks cost what they cost.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

HUGE = 2 << 20
_MADV_COLLAPSE = 25


def collapse_memory() -> int:
    """Collapse this process's private memory, as far as the kernel does; returns the number of huge pages made.

    Call it when the process is as it will be forked: with its imports done and its garbage collected. It takes up to
    half a second.
    """
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    num_made = 0
    for start, stop in _private_ranges():
        for address in range(-(-start // HUGE) * HUGE, stop // HUGE * HUGE, HUGE):
            num_made += madvise(address, HUGE, _MADV_COLLAPSE) == 0
    return num_made


def _private_ranges() -> list[tuple[int, int]]:
    """Address ranges of memory that is no file's: writable, the heap included, stacks left out."""
    ranges: list[tuple[int, int]] = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        where, rights, _, _, inode, *name = line.split(maxsplit=5)
        if rights[1] == "w" and rights[3] == "p" and inode == "0" and (not name or name[0] in ("[heap]",)):
            start, _, stop = where.partition("-")
            ranges.append((int(start, 16), int(stop, 16)))
    return ranges
