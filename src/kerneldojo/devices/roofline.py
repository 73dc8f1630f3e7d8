"""What a call would cost on a real GPU, from counted work: a roofline with a launch cost and occupancy.

One model prices the candidate's kernels and the library's operations:

    time = launch + max(DRAM time / m, L2 time / m, shared memory time / c, compute time / c)

- *DRAM bytes* are the distinct bytes read and written, and of what is accessed again the share that a working set
  larger than the L2 would miss. *L2 bytes* are all accesses in 32-byte sectors.
- *m*, the share of the memory system that the launch can keep busy, grows with the warps in flight: 16 warps on every
  multiprocessor saturate it (4 where a kernel feeds the matrix units, whose operands arrive by asynchronous copies),
  and one multiprocessor alone draws at most 2.5 times its share.
- *c*, the share of the arithmetic, is that of the multiprocessors that have a block, times how many of their warps
  (8 saturate the matrix units), times how evenly blocks divide into waves.
- Peaks are never reached: `EFFICIENCY` says by how much, the same for both sides except for matrix products, where the
  library is credited with tuned code and a Triton kernel with whatever its tiles allow, through the traffic that they
  cause in L2 and shared memory.

Between kernels nothing is kept in cache, so fusing two operations saves the traffic between them and one launch. At
the small sizes that an interpreter can run, most kernels cost little but their launch, on a GPU as in this model; a
fused kernel still gains by launching once. The figures order implementations; they are not measurements.

`compile_baseline` models what an ideal compiler would make of a chain of library operations: see there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

from kerneldojo.devices.specs import GPU, LAUNCH_SECONDS
from kerneldojo.devices.work import Compiled, Pattern, Precision, Traffic, Work
from kerneldojo.schema import Frozen, KernelTime, Roofline

BANDWIDTH_EFFICIENCY = 0.9
"""Share of the peak bandwidth of DRAM and L2 that well-written code reaches."""
EFFICIENCY: dict[Pattern, float] = {"product": 0.8, "convolution": 0.7, "attention": 0.6}
"""Share of the peak rate that the library reaches on large problems (cuBLAS, cuDNN, flash attention; assumed)."""
OWN_EFFICIENCY = 0.75
"""Share of the peak rate that a Triton kernel with ample tiles reaches (assumed)."""
WARPS_TO_SATURATE_MEMORY = 16
PIPELINED_WARPS_TO_SATURATE_MEMORY = 4
WARPS_TO_SATURATE_COMPUTE = 8
SOLO_BANDWIDTH = 2.5
"""How many times its even share of the bandwidth one multiprocessor can draw."""
LIBRARY_TILE = 32 * 32
LIBRARY_SPLIT = 32
"""Outputs of a block of the library's products when there are few, and where it splits the inner dimension."""
LIBRARY_WIDE_TILE = 256
"""Side of the region of outputs for which the library's products read their operands once (a cluster of blocks)."""
ITEM_BYTES: dict[Precision, int] = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "fp8": 1, "int8": 1}
MARGIN = 1.05
"""The physical limit allows this much more than the peak bandwidth of the data sheet."""


class Modeled(Frozen):
    """What a call costs by the model."""

    total_ms: float
    launches: int
    kernels: tuple[KernelTime, ...]
    """One entry for each kernel by name, in order of first launch."""
    own_ms: float
    """Of `total_ms`, the candidate's own kernels."""
    dram_bytes: int
    """Bytes moved between DRAM and the chip."""

    @property
    def coverage(self) -> float | None:
        """Own kernels' share of the time; None where nothing was launched."""
        return self.own_ms / self.total_ms if self.total_ms else None


class Cost(Frozen):
    """The parts of one work's price, in seconds."""

    launch: float
    dram: float
    l2: float
    shared: float
    compute: float
    dram_bytes: int

    @property
    def seconds(self) -> float:
        """Parts overlap, except the launch."""
        return self.launch + max(self.dram, self.l2, self.shared, self.compute)


def price(
    works: Sequence[Work],
    gpu: GPU,
    compiled: Iterable[Compiled] = (),
    baseline: Literal["eager", "compile"] = "eager",
) -> Modeled:
    """Price the work of one call.

    Args:
        works: in order of launch, as a `Meter` counted them; what is from outside has no price here.
        gpu: the device.
        compiled: registers and shared memory of own kernels, where they were compiled; others are taken to be small.
        baseline: `compile` prices the library's operations as `compile_baseline` fuses them.
    """
    if baseline == "compile":
        works = compile_baseline(works)
    works = [work for work in works if work.pattern != "outside"]
    built = {item.specialization: item for item in compiled}
    costs = [(work, cost(work, gpu, built.get(work.specialization))) for work in works]
    totals: dict[tuple[bool, int, str], tuple[float, int]] = {}
    for work, priced in costs:
        key = (work.own, work.identity, work.name)
        seconds, launches = totals.get(key, (0.0, 0))
        totals[key] = (seconds + priced.seconds, launches + work.num_launches)
    return Modeled(
        total_ms=1e3 * math.fsum(priced.seconds for _, priced in costs),
        launches=sum(work.num_launches for work in works),
        kernels=tuple(
            KernelTime(name=name, device_ms=1e3 * seconds, num_launches=launches, own=own)
            for (own, _, name), (seconds, launches) in totals.items()
        ),
        own_ms=1e3 * math.fsum(priced.seconds for work, priced in costs if work.own),
        dram_bytes=sum(priced.dram_bytes for _, priced in costs),
    )


def cost(work: Work, gpu: GPU, compiled: Compiled | None = None) -> Cost:
    """Price one work; a launch with no program costs nothing."""
    if not work.num_launches:
        return Cost(launch=0, dram=0, l2=0, shared=0, compute=0, dram_bytes=0)
    memory, compute = _shares(work, gpu, compiled)
    distinct = work.read_bytes + work.written_bytes
    accessed = max(work.accessed_bytes, distinct, _library_rereads(work))
    missed = max(0.0, 1 - gpu.l2_bytes / distinct) if distinct else 0.0
    dram_bytes = distinct + int(missed * (accessed - distinct))
    return Cost(
        launch=LAUNCH_SECONDS * work.num_launches,
        dram=dram_bytes / (gpu.memory_bandwidth * BANDWIDTH_EFFICIENCY * memory),
        l2=accessed / (gpu.l2_bandwidth * BANDWIDTH_EFFICIENCY * memory),
        shared=work.operand_bytes / (gpu.shared_bandwidth * compute),
        compute=_compute_seconds(work, gpu) / compute,
        dram_bytes=dram_bytes,
    )


def _library_rereads(work: Work) -> int:
    """Bytes that the library's products draw from the L2: each output tile reads its rows and columns once."""
    if work.own or not work.products:
        return 0
    itemsize = ITEM_BYTES[work.products[0].precision]
    return int(work.product_flops / 2 * itemsize * 2 / LIBRARY_WIDE_TILE)


def _compute_seconds(work: Work, gpu: GPU) -> float:
    """With every multiprocessor busy."""
    efficiency = OWN_EFFICIENCY if work.own else EFFICIENCY.get(work.pattern, OWN_EFFICIENCY)
    products = math.fsum(item.flops / gpu.peak_flops[item.precision] for item in work.products)
    # A peak counts a multiply-add as two; a lone operation takes the place of one. The special unit has a quarter of
    # the lanes, and a division or exponential takes several of its results.
    lanes = gpu.peak_flops["fp32"] / 2
    return products / efficiency + work.arithmetic / lanes + work.special / (lanes / 8)


def _shares(work: Work, gpu: GPU, compiled: Compiled | None) -> tuple[float, float]:
    """Shares of the memory system and of the arithmetic that a launch can keep busy, each in (0, 1]."""
    if not work.own:
        return _library_shares(work, gpu)
    per_multiprocessor = blocks_per_multiprocessor(work, gpu, compiled)
    room = per_multiprocessor * gpu.num_multiprocessors
    programs, num_warps = max(1, work.num_programs), max(1, work.num_warps)  # A claim may say none.
    resident = min(programs, room)
    active = min(resident, gpu.num_multiprocessors) / gpu.num_multiprocessors
    warps = resident * num_warps / gpu.num_multiprocessors
    # Blocks that finish make room at once, so only the last, partly filled wave is lost.
    waves = programs / room
    evenness = waves / math.ceil(waves) if waves > 1 else 1.0
    needed = PIPELINED_WARPS_TO_SATURATE_MEMORY if work.operand_bytes else WARPS_TO_SATURATE_MEMORY
    memory = min(1.0, warps / needed, SOLO_BANDWIDTH * active)
    busy = resident * num_warps / (active * gpu.num_multiprocessors)
    return memory, active * min(1.0, busy / WARPS_TO_SATURATE_COMPUTE) * evenness


def _library_shares(work: Work, gpu: GPU) -> tuple[float, float]:
    """The library picks tiles, and splits inner dimensions, to fill the device where the problem allows it."""
    outputs = max(1, work.written_bytes // 4)
    if work.products:
        inner = work.product_flops / 2 / outputs
        blocks = math.ceil(outputs / LIBRARY_TILE) * max(1, math.ceil(inner / LIBRARY_SPLIT))
        share = min(1.0, blocks / gpu.num_multiprocessors)
        return min(1.0, SOLO_BANDWIDTH * share), share
    # Reductions are parallel over what they read, everything else over what it writes.
    elements = max(outputs, work.read_bytes // 4) if work.pattern == "reduction" else outputs
    warps = max(1.0, elements / 128) / gpu.num_multiprocessors
    active = min(1.0, elements / 512 / gpu.num_multiprocessors)
    active = max(active, 1 / gpu.num_multiprocessors)
    return min(1.0, warps / WARPS_TO_SATURATE_MEMORY, SOLO_BANDWIDTH * active), active


def blocks_per_multiprocessor(work: Work, gpu: GPU, compiled: Compiled | None) -> int:
    """Blocks of a launch that fit on one multiprocessor, by threads, registers and shared memory; at least one."""
    num_warps = (compiled.num_warps if compiled else None) or work.num_warps
    threads = 32 * max(1, num_warps)
    limits = [gpu.max_blocks_per_multiprocessor, gpu.max_threads_per_multiprocessor // threads]
    if compiled and compiled.registers:
        allocated = math.ceil(compiled.registers / 8) * 8 * threads
        limits.append(gpu.registers_per_multiprocessor // allocated)
    if compiled and compiled.shared_bytes:
        limits.append(gpu.shared_bytes_per_multiprocessor // (compiled.shared_bytes + 1024))
    return max(1, min(limits))


def compile_baseline(works: Sequence[Work]) -> list[Work]:
    """Fuse chains of library operations as an ideal compiler would.

    The rule: a run of consecutive elementwise operations and reductions becomes one kernel, which reads each buffer
    that comes from outside once, and writes only buffers that something outside the run reads later, or that nothing
    reads at all (the outputs). Arithmetic adds up. Products, convolutions, attention and everything else stay as they
    are, without fused prologues or epilogues; own kernels end a run.
    """
    fused: list[Work] = []
    run: list[Work] = []
    for i, work in enumerate(works):
        if not work.own and work.pattern in ("elementwise", "reduction"):
            run.append(work)
        else:
            fused += _fuse(run, works[i:])
            fused.append(work)
            run = []
    return fused + _fuse(run, ())


def _fuse(run: list[Work], after: Sequence[Work]) -> list[Work]:
    if len(run) < 2:
        return run
    later = {item.storage for work in after for item in work.reads}
    inside: set[int] = set()
    reads: dict[int, int] = {}
    writes: dict[int, int] = {}
    read_inside: set[int] = set()
    for work in run:
        for item in work.reads:
            if item.storage in inside:
                read_inside.add(item.storage)
            else:
                reads[item.storage] = max(reads.get(item.storage, 0), item.num_bytes)
        for item in work.writes:
            inside.add(item.storage)
            writes[item.storage] = max(writes.get(item.storage, 0), item.num_bytes)
    kept = {s: n for s, n in writes.items() if s in later or s not in read_inside}
    read = tuple(Traffic(storage=s, num_bytes=n) for s, n in sorted(reads.items()))
    written = tuple(Traffic(storage=s, num_bytes=n) for s, n in sorted(kept.items()))
    merged = Work(
        own=False,
        name="+".join(work.name.removeprefix("aten::") for work in run)[:200],
        pattern="reduction" if any(work.pattern == "reduction" for work in run) else "elementwise",
        num_programs=max(work.num_programs for work in run),
        reads=read,
        writes=written,
        accessed_bytes=sum(item.sector_bytes for item in (*read, *written)),
        arithmetic=math.fsum(work.arithmetic for work in run),
        special=math.fsum(work.special for work in run),
    )
    return [merged]


def physical_limit(compulsory_bytes: int, flops: float, precision: Precision, gpu: GPU) -> Roofline:
    """The time below which no kernel can be, on this GPU.

    Args:
        compulsory_bytes: inputs on which the output depends, and outputs, beyond what caches can hold.
        flops: FLOPs that cannot be avoided; zero where the problem is not marked irreducible.
        precision: the fastest class of arithmetic that the problem accepts.
        gpu: the device.
    """
    memory = compulsory_bytes / (gpu.memory_bandwidth * MARGIN)
    compute = flops / gpu.peak_flops[precision]
    return Roofline(
        limit_ms=1e3 * max(memory, compute),
        bound="memory" if memory >= compute else "compute",
        compulsory_bytes=compulsory_bytes,
        irreducible_flops=flops,
    )
