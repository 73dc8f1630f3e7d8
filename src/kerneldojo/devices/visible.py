"""How many GPUs this process may use, told without PyTorch and without CUDA.

Who supervises judges asks this, and shall neither initialise the driver, which leaves its descriptors open for good,
nor keep PyTorch's half a gigabyte for one number. NVML sees all GPUs; `CUDA_VISIBLE_DEVICES` says which of them count.
"""

from __future__ import annotations

import importlib
import os
from typing import Any


def count() -> int | None:
    """GPUs by NVML, cut to those that are visible; None where that cannot be told: then only PyTorch knows.

    That is so without NVML, and where GPUs are named by UUID, as parts of one (MIG) are.
    """
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    chosen = None if names is None else [name.strip() for name in names.split(",")]
    if chosen is not None and chosen != [""] and not all(name.isdecimal() for name in chosen):
        return None
    there = _by_nvml()
    if there is None or chosen is None:
        return there
    return num_chosen([int(name) for name in chosen if name], there)


def num_chosen(chosen: list[int], there: int) -> int:
    """As CUDA reads its list: it ends where no GPU has that number, and one that names a GPU twice names nothing."""
    if len(set(chosen)) < len(chosen):
        return 0
    return next((position for position, index in enumerate(chosen) if index >= there), len(chosen))


def _by_nvml() -> int | None:
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        return int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()
