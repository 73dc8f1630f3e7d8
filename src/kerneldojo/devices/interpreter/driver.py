"""The driver that `triton.runtime.driver.active` answers with: the emulated GPU's target and properties."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.testing
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from kerneldojo.devices.interpreter.emulation import CUDA, emulated_gpu

LAUNCH: Callable[..., Any] = JITFunction.run
"""What Triton does when a kernel that is not interpreted is launched, whatever is done to it here."""


class _Utils:
    """What kernels' host code reads to size a persistent grid."""

    def get_device_properties(self, device: int) -> dict[str, int]:
        """Limits of the emulated GPU, under Triton's names."""
        spec = emulated_gpu()
        return {
            "max_shared_mem": spec.shared_bytes_per_block,
            "max_num_regs": spec.registers_per_multiprocessor,
            "multiprocessor_count": spec.num_multiprocessors,
            "warpSize": 32,
            "sm_clock_rate": round(spec.clock_hz / 1e3),
            "mem_clock_rate": 0,
            "mem_bus_width": 0,
        }


class EmulatedDriver:
    """As much of Triton's driver as host code asks for."""

    utils = _Utils()

    def get_current_target(self) -> GPUTarget:
        """The emulated GPU."""
        major, minor = emulated_gpu().compute_capability
        return GPUTarget("cuda", major * 10 + minor, 32)

    def get_current_device(self) -> int:
        """The only device."""
        return 0

    def set_current_device(self, device: int) -> None:
        """There is only one."""

    def get_current_stream(self, device: int | None = None) -> int:
        """The null stream."""
        return 0

    def get_active_torch_device(self) -> torch.device:
        """The device on which tensors claim to be."""
        return CUDA

    def get_device_interface(self) -> Any:
        """`torch.cuda`, emulated."""
        return torch.cuda

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """No cache is flushed here."""
        return torch.empty(1)

    def clear_cache(self, cache: torch.Tensor) -> None:
        """No cache is flushed here."""

    def get_benchmarker(self) -> Callable[..., Any]:
        """See `host_time`."""
        return host_time


def launch_nothing() -> None:
    """Have kernels that are not interpreted do nothing when they are launched: there is no device."""
    patched: Any = JITFunction
    patched.run = _launch_nothing


def _launch_nothing(self: Any, *_: Any, warmup: bool = False, **__: Any) -> Any:
    from kerneldojo.devices.interpreter.launching import WarmKernel  # Which few ask for at import, and costs a second.

    return WarmKernel(self, {}) if warmup else None


def host_time(fn: Callable[[], Any], *args: Any, quantiles: Any = None, **kwargs: Any) -> Any:
    """Milliseconds of host time of one call, in the form that `triton.testing.do_bench` answers in."""
    started = time.perf_counter()
    fn()
    elapsed = (time.perf_counter() - started) * 1e3
    return elapsed if quantiles is None or isinstance(quantiles, float) else [elapsed for _ in quantiles]


def install() -> None:
    """Make the emulated driver the active one, and Triton's benchmark functions harmless."""
    active: Any = EmulatedDriver()
    driver.set_active(active)
    testing: Any = triton.testing
    testing.do_bench = testing.do_bench_cudagraph = host_time
