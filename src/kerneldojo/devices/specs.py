"""Real GPUs as their vendor describes them: what the roofline prices with, and what emulated host code is told.

Every figure is a peak from the source named in `GPU.sources`. Rates are dense (no sparsity), at boost clock. Two
figures are not in any data sheet and are assumptions, stated here once: the L2 bandwidth, taken as 5.5 TB/s for an H100
as measured by public micro-benchmarks and scaled to others by multiprocessors and clock (64 bytes a clock and
multiprocessor read at about two thirds, 24 to 25 bytes a clock and multiprocessor effective); and the cost of a launch.
"""

from __future__ import annotations

from pydantic import Field

from kerneldojo.devices.work import Precision
from kerneldojo.schema import Frozen

LAUNCH_SECONDS = 3e-6
"""Assumed cost of one kernel in a stream of many: the gap that the host and the front end of the GPU leave. The same
for own kernels and for the library's, so that it favours neither; fewer launches are the gain of a fused kernel."""

L2_BYTES_PER_CLOCK = 24.0
"""Assumed effective L2 bandwidth of a multiprocessor, in bytes a clock."""

SHARED_BYTES_PER_CLOCK = 128.0
"""Shared memory of a multiprocessor: 32 banks of 4 bytes (CUDA C++ Programming Guide)."""


class GPU(Frozen):
    """One model of GPU. Rates in units a second, sizes in bytes."""

    name: str
    """As in `model:<name>`."""
    full_name: str
    compute_capability: tuple[int, int]
    memory_bytes: int
    memory_bandwidth: float
    """Peak of the DRAM, bytes a second."""
    l2_bytes: int
    num_multiprocessors: int
    clock_hz: float
    """Boost clock."""
    peak_flops: dict[Precision, float]
    """Dense peak by class of arithmetic. A class that the hardware lacks is that by which it would be emulated."""
    shared_bytes_per_block: int
    """Most shared memory of one block (opt-in)."""
    shared_bytes_per_multiprocessor: int
    registers_per_multiprocessor: int = 65536
    max_threads_per_multiprocessor: int = 2048
    max_blocks_per_multiprocessor: int = 32
    sources: tuple[str, ...] = Field(min_length=1)
    """Where the figures come from."""

    @property
    def l2_bandwidth(self) -> float:
        """Assumed, in bytes a second: see the module's text. A cache is taken to be half as fast again as its DRAM."""
        return max(L2_BYTES_PER_CLOCK * self.num_multiprocessors * self.clock_hz, 1.5 * self.memory_bandwidth)

    @property
    def shared_bandwidth(self) -> float:
        """Of all multiprocessors together, in bytes a second."""
        return SHARED_BYTES_PER_CLOCK * self.num_multiprocessors * self.clock_hz

    @property
    def target(self) -> int:
        """Compute capability as Triton writes it, for example 90."""
        return self.compute_capability[0] * 10 + self.compute_capability[1]


def _rates(fp64: float, fp32: float, tf32: float, fp16: float, fp8: float, int8: float) -> dict[Precision, float]:
    """Teraflops to FLOP/s."""
    return {
        "fp64": fp64 * 1e12,
        "fp32": fp32 * 1e12,
        "tf32": tf32 * 1e12,
        "fp16": fp16 * 1e12,
        "fp8": fp8 * 1e12,
        "int8": int8 * 1e12,
    }


GUIDE = "CUDA C++ Programming Guide, table of technical specifications per compute capability"
HOPPER = "NVIDIA H100 Tensor Core GPU Architecture whitepaper"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

_HOPPER_RATES = _rates(fp64=66.9, fp32=66.9, tf32=494.7, fp16=989.4, fp8=1978.9, int8=1978.9)

GPUS: dict[str, GPU] = {
    spec.name: spec
    for spec in (
        GPU(
            name="h100",
            full_name="NVIDIA H100 80GB HBM3",
            compute_capability=(9, 0),
            memory_bytes=80 * GIB,
            memory_bandwidth=3.35e12,
            l2_bytes=50 * MIB,
            num_multiprocessors=132,
            clock_hz=1.83e9,
            peak_flops=_HOPPER_RATES,
            shared_bytes_per_block=227 * KIB,
            shared_bytes_per_multiprocessor=228 * KIB,
            sources=("NVIDIA H100 Tensor Core GPU datasheet (SXM5)", HOPPER, GUIDE),
        ),
        GPU(
            name="h200",
            full_name="NVIDIA H200",
            compute_capability=(9, 0),
            memory_bytes=141 * 10**9,
            memory_bandwidth=4.8e12,
            l2_bytes=50 * MIB,
            num_multiprocessors=132,
            clock_hz=1.83e9,
            peak_flops=_HOPPER_RATES,
            shared_bytes_per_block=227 * KIB,
            shared_bytes_per_multiprocessor=228 * KIB,
            sources=("NVIDIA H200 Tensor Core GPU datasheet (SXM)", HOPPER, GUIDE),
        ),
        GPU(
            name="h20",
            full_name="NVIDIA H20",
            compute_capability=(9, 0),
            memory_bytes=96 * 10**9,
            memory_bandwidth=4.0e12,
            l2_bytes=60 * MIB,
            num_multiprocessors=78,
            clock_hz=1.83e9,
            peak_flops=_rates(fp64=1.0, fp32=44.0, tf32=74.0, fp16=148.0, fp8=296.0, int8=296.0),
            shared_bytes_per_block=227 * KIB,
            shared_bytes_per_multiprocessor=228 * KIB,
            sources=("NVIDIA HGX H20 product figures as published by system vendors (no public data sheet)", GUIDE),
        ),
        GPU(
            name="a100",
            full_name="NVIDIA A100-SXM4-80GB",
            compute_capability=(8, 0),
            memory_bytes=80 * GIB,
            memory_bandwidth=2.039e12,
            l2_bytes=40 * MIB,
            num_multiprocessors=108,
            clock_hz=1.41e9,
            peak_flops=_rates(fp64=19.5, fp32=19.5, tf32=156.0, fp16=312.0, fp8=312.0, int8=624.0),
            shared_bytes_per_block=163 * KIB,
            shared_bytes_per_multiprocessor=164 * KIB,
            sources=("NVIDIA A100 Tensor Core GPU datasheet (80GB SXM)", "NVIDIA A100 architecture whitepaper", GUIDE),
        ),
        GPU(
            name="a10g",
            full_name="NVIDIA A10G",
            compute_capability=(8, 6),
            memory_bytes=24 * GIB,
            memory_bandwidth=600e9,
            l2_bytes=6 * MIB,
            num_multiprocessors=80,
            clock_hz=1.71e9,
            peak_flops=_rates(fp64=0.55, fp32=35.0, tf32=35.0, fp16=70.0, fp8=70.0, int8=140.0),
            shared_bytes_per_block=99 * KIB,
            shared_bytes_per_multiprocessor=100 * KIB,
            max_threads_per_multiprocessor=1536,
            max_blocks_per_multiprocessor=16,
            sources=("NVIDIA A10G datasheet (AWS)", "NVIDIA Ampere GA102 whitepaper", GUIDE),
        ),
        GPU(
            name="l40s",
            full_name="NVIDIA L40S",
            compute_capability=(8, 9),
            memory_bytes=48 * GIB,
            memory_bandwidth=864e9,
            l2_bytes=96 * MIB,
            num_multiprocessors=142,
            clock_hz=2.52e9,
            peak_flops=_rates(fp64=1.43, fp32=91.6, tf32=183.0, fp16=362.05, fp8=733.0, int8=733.0),
            shared_bytes_per_block=99 * KIB,
            shared_bytes_per_multiprocessor=100 * KIB,
            max_threads_per_multiprocessor=1536,
            max_blocks_per_multiprocessor=24,
            sources=("NVIDIA L40S datasheet", "NVIDIA Ada GPU architecture whitepaper", GUIDE),
        ),
        GPU(
            name="b200",
            full_name="NVIDIA B200",
            compute_capability=(10, 0),
            memory_bytes=180 * 10**9,
            memory_bandwidth=8.0e12,
            l2_bytes=126 * MIB,
            num_multiprocessors=148,
            clock_hz=1.965e9,
            peak_flops=_rates(fp64=37.0, fp32=75.0, tf32=1100.0, fp16=2250.0, fp8=4500.0, int8=4500.0),
            shared_bytes_per_block=227 * KIB,
            shared_bytes_per_multiprocessor=228 * KIB,
            sources=("NVIDIA Blackwell (HGX/DGX B200) datasheet, an eighth of the system's figures", GUIDE),
        ),
        GPU(
            name="rtx4090",
            full_name="NVIDIA GeForce RTX 4090",
            compute_capability=(8, 9),
            memory_bytes=24 * GIB,
            memory_bandwidth=1.008e12,
            l2_bytes=72 * MIB,
            num_multiprocessors=128,
            clock_hz=2.52e9,
            peak_flops=_rates(fp64=1.29, fp32=82.6, tf32=82.6, fp16=165.2, fp8=330.3, int8=660.6),
            shared_bytes_per_block=99 * KIB,
            shared_bytes_per_multiprocessor=100 * KIB,
            max_threads_per_multiprocessor=1536,
            max_blocks_per_multiprocessor=24,
            sources=("NVIDIA Ada GPU architecture whitepaper, appendix A (fp16 and fp8 with fp32 accumulate)", GUIDE),
        ),
    )
}
"""By the name that `model:<name>` uses."""


def like(full_name: str, compute_capability: tuple[int, int]) -> GPU | None:
    """The GPU that a driver calls so, else the first that is of its generation; None if there is none."""
    alike = [spec for spec in GPUS.values() if spec.compute_capability == compute_capability]
    return next((spec for spec in alike if spec.full_name == full_name), alike[0] if alike else None)


def gpu(name: str) -> GPU:
    """The GPU of that name, upper and lower case, hyphens, underscores and spaces aside.

    Raises:
        ValueError: none; the message names those that are known.
    """
    plain = "".join(c for c in name.lower() if c.isalnum())
    if plain not in GPUS:
        raise ValueError(f"unknown GPU {name!r}; known: {', '.join(sorted(GPUS))}")
    return GPUS[plain]
