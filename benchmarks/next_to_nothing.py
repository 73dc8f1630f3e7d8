"""How long the driver and the device take for next to nothing, asked now and then by a process of its own.

A question about memory, an allocation that is freed at once, four bytes set to zero: where others keep the driver or
the device busy, these take as much longer.
"""

from __future__ import annotations

import ctypes
import mmap
import statistics
import struct
import time
from pathlib import Path

PROBE_SECONDS = 0.01
PROBE_BYTES = 4 << 20
ROW = struct.Struct("<3d")
QUESTIONS = ("memory asked about", "memory allocated, freed", "four bytes set")


def probe(is_open: mmap.mmap, path: Path, number: int) -> None:
    """Ask the driver and the device for next to nothing, until killed; what each took goes into a file."""
    driver = ctypes.CDLL("libcuda.so.1")
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert driver.cuInit(0) == 0
    assert driver.cuCtxCreate_v2(ctypes.byref(context), 0, number) == 0
    small = ctypes.c_uint64()
    assert driver.cuMemAlloc_v2(ctypes.byref(small), ctypes.c_size_t(4096)) == 0
    size = ctypes.c_size_t(PROBE_BYTES)
    while True:
        time.sleep(PROBE_SECONDS)
        if is_open[0]:
            continue
        t0 = time.perf_counter()
        driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        t1 = time.perf_counter()
        assert driver.cuMemAlloc_v2(ctypes.byref(address), size) == 0
        assert driver.cuMemFree_v2(address) == 0
        t2 = time.perf_counter()
        driver.cuMemsetD32Async(small, 0, ctypes.c_size_t(1), None)
        driver.cuCtxSynchronize()
        t3 = time.perf_counter()
        if not is_open[0]:
            with path.open("ab") as file:
                file.write(ROW.pack(t1 - t0, t2 - t1, t3 - t2))


def told(path: Path, begin: int, what: str) -> int:
    """Say what the probe has found since place `begin` of its file; returns where it ends now."""
    found = path.read_bytes()
    rows = list(ROW.iter_unpack(found[begin : len(found) // ROW.size * ROW.size]))
    for place, question in enumerate(QUESTIONS):
        took = sorted(1000 * row[place] for row in rows)
        if took:
            middle, mean, high = statistics.median(took), statistics.mean(took), took[int(0.9 * len(took))]
            print(f"    {what}: {question}: median {middle:.3f} ms, mean {mean:.3f},")
            print(f"      nine tenths within {high:.3f} ({len(took)} times)", flush=True)
    return len(found) // ROW.size * ROW.size
