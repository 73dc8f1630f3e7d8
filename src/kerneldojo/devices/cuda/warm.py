"""What a fork server does once, so that no contestant on CUDA has to: without ever touching the device.

A forked child can use CUDA only if its parent never did. Importing torch, Triton and the bindings, loading the
allocator, Triton's own driver module and compiling a kernel for the target are all possible without; asking whether
CUDA is available is not.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch

from kerneldojo.devices.cuda import profiler
from kerneldojo.devices.cuda.heap import Heap, compile_allocator
from kerneldojo.devices.cuda.launchers import Launchers

CUDA_ERROR_NOT_INITIALIZED = 3


@cache
def heap() -> Heap:
    """The process' allocator, installed on first use. Before that, torch must not have allocated on the device."""
    with tempfile.TemporaryDirectory(prefix="dojo-allocator-") as folder:  # What is loaded needs no file any more.
        allocator = Heap(compile_allocator(Path(folder)))
    allocator.install()
    return allocator


@cache
def launchers() -> Launchers:
    """The process' launchers; what a fork server has, its forks have."""
    return Launchers(importlib.import_module("triton.backends.nvidia.driver"))


def prepare() -> None:
    """Warm up the process that contestants are forked from.

    Raises:
        RuntimeError: torch has no CUDA, or the allocator does not compile.
    """
    if torch.version.cuda is None:
        raise RuntimeError("this PyTorch was built without CUDA")
    heap()
    for module in ("cuda.bindings.driver", "pynvml"):
        importlib.import_module(module)
    with suppress(ImportError):  # No profile then; coverage will be null.
        profiler.born()
    _load_triton_driver()
    remember_properties()
    launchers().install()
    _compile_something()
    importlib.import_module("triton.experimental.gluon")  # Which the first launch of a process asks for: 50 ms.
    if torch.cuda.is_initialized() or driver_is_initialised():
        raise RuntimeError("the fork server touched CUDA: no contestant could use it")


def driver_is_initialised() -> bool:
    """Whether `cuInit` was called in this process, by whomever; asking does not call it."""
    count = ctypes.c_int()
    return ctypes.CDLL("libcuda.so.1").cuDeviceGetCount(ctypes.byref(count)) != CUDA_ERROR_NOT_INITIALIZED


@cache
def capability() -> tuple[int, int]:
    """Compute capability of the one visible device, asked of NVML, which makes no context. Forks know it already."""
    nvml: Any = importlib.import_module("pynvml")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    nvml.nvmlInit()
    try:
        by_uuid = visible.startswith("GPU-")
        handle = nvml.nvmlDeviceGetHandleByUUID(visible) if by_uuid else nvml.nvmlDeviceGetHandleByIndex(0)
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    finally:
        nvml.nvmlShutdown()
    return int(major), int(minor)


def _load_triton_driver() -> None:
    """Build and load Triton's driver module, which otherwise costs each contestant a run of gcc."""
    from triton.backends.nvidia.driver import CudaDriver
    from triton.runtime.driver import driver

    active: Any = CudaDriver()
    driver.set_active(active)


def remember_properties() -> None:
    """Have Triton ask a process' device once what it asks anew for each kernel that it loads.

    Clock rates are among it, for which the driver asks the GPU's own processor: ten questions of a millisecond each,
    in which all others wait.
    """
    utils = _triton_utils()
    asked = cache(utils.get_device_properties)
    utils.get_device_properties = lambda device: dict(asked(device))


def ask_properties(index: int) -> None:
    """Ask them now: of a device whose context is there."""
    _triton_utils().get_device_properties(index)


def _triton_utils() -> Any:
    from triton.runtime.driver import driver

    active: Any = driver.active
    return active.utils


def _compile_something() -> None:
    """The first compilation in a process loads LLVM's passes and costs a second."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from kerneldojo.devices.cuda import rehearsal

    major, minor = capability()
    source = ASTSource(
        rehearsal.rehearse, {"source": "*fp32", "target": "*fp32", "count": "i32", "BLOCK": "constexpr"}, {"BLOCK": 256}
    )
    triton.compile(source, target=GPUTarget("cuda", 10 * major + minor, 32))
