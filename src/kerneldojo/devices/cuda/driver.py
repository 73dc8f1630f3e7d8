"""The CUDA driver, called by name: `call("cuMemCreate", ...)` returns what it yields or raises `CudaError`.

Everything below torch (shared memory, clocks, contexts) goes through here, so that no error code is ever dropped.
The binding package is imported at first use: this module can be imported on a machine without CUDA.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import torch


class CudaError(RuntimeError):
    """The driver refused; the message names the call and the driver's own error name."""

    def __init__(self, function: str, name: str):
        super().__init__(f"{function}: {name}")
        self.name = name


@cache
def bindings() -> Any:
    """`cuda.bindings.driver`. Raises ImportError where the `cuda` extra is not installed."""
    return importlib.import_module("cuda.bindings.driver")


def call(function: str, *arguments: Any) -> Any:
    """Call the driver's `function`; returns None, its one result, or a tuple of its results."""
    driver = bindings()
    status, *results = getattr(driver, function)(*arguments)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise CudaError(function, status.name)
    if not results:
        return None
    return results[0] if len(results) == 1 else tuple(results)


def enter_context(device: int = 0) -> None:
    """Make the device's primary context current, as torch does, before anything is mapped into it."""
    torch.cuda.init()
    torch.cuda.set_device(device)
    call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", device)))
