"""What verdicts ask of the NVIDIA driver, which does one thing at a time: calls and milliseconds a verdict.

    PYTHONPATH=src python benchmarks/driver_calls.py --at-once 1 4 --pace apart ahead

A library that is loaded before all others (`probes/driver_calls.c`) times every ioctl of the judge and of what it
hosts, and notes which command a hosted process was at. *In the driver* is the time in which at least one call was:
calls that wait for another's end are long, but count once. What a process gives back when it ends is no call of its
own: it counts from the order to end until its files are closed. Kinds are named as in NVIDIA's open kernel modules.
"""

from __future__ import annotations

import heapq
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from options import options

FOLDER = "DRIVER_CALLS"
SOURCE = Path(__file__).parent / "probes" / "driver_calls.c"
RECORD = np.dtype([("kind", "u4"), ("detail", "u4"), ("start", "u8"), ("took", "u8"), ("command", "u8")])
NUM_COMMANDS, LETTERS = 64, 32
COMMANDS_AT = 64
HEAD_BYTES = COMMANDS_AT + NUM_COMMANDS * LETTERS
CALLS = {0x27: "alloc memory", 0x29: "free", 0x2A: "control", 0x2B: "alloc", 0x4E: "map memory", 201: "register fd"}
UVM = {25: "register address space", 27: "register channel", 33: "map external", 37: "register GPU", 34: "free"}
CLASSES = {0x3E: "system memory", 0x40: "local memory", 0x80: "device", 0x83DE: "debugger", 0x90F1: "address space"}
CLASSES |= {0xA06C: "channel group", 0xC86F: "channel", 0xC96F: "channel", 0xCBC0: "compute", 0xC8B5: "copy engine"}
MOST_KINDS = 32
END = 0x2000
"""The kind of what is no call: a process that ends."""
WINDOWS: list[tuple[int, int]] = []
"""Beginning and end of each window, in nanoseconds of the monotonic clock."""
ENDS: list[tuple[int, int]] = []
"""When a process was ordered to end, and when it had."""


def loaded_again() -> None:
    """Start this program anew with the library before all others."""
    folder = tempfile.mkdtemp(prefix="driver-calls-")
    library = f"{folder}/driver_calls.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, str(SOURCE)], check=True)
    os.environ.update({FOLDER: folder, "LD_PRELOAD": library})
    os.execv(sys.executable, [sys.executable, *sys.argv])


def name_of(kind: int, detail: int) -> str:
    if kind == END:
        return "all of it"
    if kind & 0x1000:
        return f"uvm {UVM.get(kind & 0xFFF, kind & 0xFFF)}"
    name = CALLS.get(kind, f"call {kind:#x}")
    return {0x2A: f"{name} {detail:#x}", 0x2B: f"{name} {CLASSES.get(detail, hex(detail))}"}.get(kind, name)


def read(begun: int) -> tuple[Any, Any]:
    """All calls since `begun` (ns), in a row, and what each belongs to: a command of a hosted process, or the judge."""
    books: list[Any] = []
    owners: list[Any] = []
    for path in Path(os.environ[FOLDER]).glob("*.bin"):
        with path.open("rb") as file:
            count = int(np.frombuffer(file.read(COMMANDS_AT), "u8")[0])
            named = np.frombuffer(file.read(NUM_COMMANDS * LETTERS), f"S{LETTERS}").astype(f"U{LETTERS}")
            rows = np.frombuffer(file.read(count * RECORD.itemsize), RECORD)
        is_judges = path.stem == str(os.getpid())
        names = np.array(["the judge" if is_judges else "before any", *named])
        books.append(rows)
        owners.append(np.full(len(rows), names[0]) if is_judges else names[rows["command"]])
    books.append(np.array([(END, 0, start, end - start, 0) for start, end in ENDS], RECORD))
    owners.append(np.full(len(ENDS), "a process that ends"))
    rows, owner = np.concatenate(books), np.concatenate(owners)
    return rows[rows["start"] >= begun], owner[rows["start"] >= begun]


def charges(rows: Any, windows: Any) -> tuple[Any, Any]:
    """Milliseconds that each call is charged with, while no window is open and while one is.

    Of those that are in the driver at the same time whoever is done first has it, and the others wait. So charges add
    up to the time in which somebody was there.
    """
    starts, ends = rows["start"].astype("i8"), (rows["start"] + rows["took"]).astype("i8")
    edges = np.unique(np.concatenate([starts, ends, windows.reshape(-1)]))
    middles = (edges[1:] + edges[:-1]) / 2
    num_open = [np.searchsorted(np.sort(windows[:, side]), middles) for side in (0, 1)]
    is_open = (num_open[0] > num_open[1]).astype(int)
    charged = np.zeros((2, len(rows)))
    order, following, waiting = np.argsort(starts), 0, list[tuple[int, int]]()
    for place, (edge, ms) in enumerate(zip(edges[:-1].tolist(), (np.diff(edges) / 1e6).tolist(), strict=True)):
        while following < len(order) and starts[order[following]] <= edge:
            heapq.heappush(waiting, (int(ends[order[following]]), int(order[following])))
            following += 1
        while waiting and waiting[0][0] <= edge:
            heapq.heappop(waiting)
        if waiting:
            charged[is_open[place], waiting[0][1]] += ms
    return charged[0], charged[1]


def union(starts: Any, ends: Any) -> Any:
    """Spans of time that are covered by at least one of those given: (n, 2), in order, apart from each other."""
    order = np.argsort(starts)
    starts, ends = starts[order].astype("i8"), np.maximum.accumulate(ends[order].astype("i8"))
    is_first = np.concatenate([[True], starts[1:] > ends[:-1]])[: len(starts)]
    is_last = np.concatenate([is_first[1:], [True]])[: len(starts)]
    return np.stack([starts[is_first], ends[is_last]], axis=1)


def seconds_in(spans: Any) -> float:
    return float((spans[:, 1] - spans[:, 0]).sum()) / 1e9


def both(some: Any, others: Any) -> float:
    """Seconds that lie in a span of the one and in one of the other: |A| + |B| - |A or B|."""
    merged = np.concatenate([some, others])
    return seconds_in(some) + seconds_in(others) - seconds_in(union(merged[:, 0], merged[:, 1]))


def show(found: tuple[Any, Any], windows: Any, num: int, seconds: float, statuses: Counter[str], what: str) -> None:
    rows, owner = found
    calls = union(rows["start"], rows["start"] + rows["took"])
    open_, busy, shared = seconds_in(windows), seconds_in(calls), both(windows, calls)
    print(f"{what}: {60 * num / seconds:.1f} a minute, {dict(statuses)}; {seconds / num:.3f} s a verdict,")
    print(f"  in the driver {busy / num:.3f} s, {len(rows) / num:.0f} calls; windows {open_ / num:.3f} s;")
    print(f"  in the driver while a window is open {shared / num:.3f} s, while none is {(busy - shared) / num:.3f} s;")
    print(f"  neither {(seconds - open_ - busy + shared) / num:.3f} s", flush=True)
    between, within = charges(rows, windows)
    kinds = [name_of(kind, detail) for kind, detail in zip(rows["kind"].tolist(), rows["detail"].tolist(), strict=True)]
    table(owner, between, within, rows["took"], num)
    table(np.char.add(np.char.add(owner, ": "), np.array(kinds)), between, within, rows["took"], num)


def table(names: Any, between: Any, within: Any, took: Any, num: int) -> None:
    """Milliseconds a verdict by name, those that take most between windows first."""
    print("   between   in windows (ms charged a verdict)    calls   us each, waits included")
    unique, place = np.unique(names, return_inverse=True)
    sums = [np.bincount(place, weights=column) for column in (between, within, took / 1e3)]
    counts = np.bincount(place)
    for row in np.argsort(-sums[0])[:MOST_KINDS]:
        ms, inside, us = (float(column[row]) for column in sums)
        each = f"{counts[row] / num:7.1f} x {us / counts[row]:8.1f} us"
        print(f"  {ms / num:8.2f} {inside / num:8.2f} {each}  {unique[row]}", flush=True)


def main() -> None:
    parser = options(__doc__, at_once=4, num=32)
    parser.add_argument("--pace", choices=["apart", "ahead"], nargs="+", default=["apart"], help="contexts and windows")
    arguments = parser.parse_args()
    if FOLDER not in os.environ:
        loaded_again()
    from cases import cases
    from judged import warmed, watch_ends, watch_windows

    from kerneldojo.judging import servers
    from kerneldojo.schema.pace import Pace

    watch_windows(time.monotonic_ns, lambda begun: WINDOWS.append((begun, time.monotonic_ns())))
    watch_ends(lambda ordered, ended: ENDS.append((ordered, ended)))
    # What is hosted begins with an environment of its own.
    servers.FEW_QUEUES.update({FOLDER: os.environ[FOLDER], "LD_PRELOAD": os.environ["LD_PRELOAD"]})
    chosen = cases(arguments.size)
    for at_once, pace in itertools.product(arguments.at_once, arguments.pace):
        settings = Pace() if pace == "ahead" else Pace(contexts_ahead=0)
        with warmed(chosen, arguments.device, at_once, settings) as judged:
            begun, start = time.monotonic_ns(), time.perf_counter()
            statuses = judged(arguments.num)
            seconds = time.perf_counter() - start
            spans = np.array([span for span in WINDOWS if span[0] >= begun], dtype="i8").reshape(-1, 2)
            show(read(begun), spans, arguments.num, seconds, statuses, f"{at_once} at once, contexts {pace}")


if __name__ == "__main__":
    main()
