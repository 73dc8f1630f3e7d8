"""Which GPUs this process may use, told without PyTorch and without CUDA.

Who supervises judges asks this, and shall neither initialise the driver, which leaves its descriptors open for good,
nor keep PyTorch's half a gigabyte for one number; and what is begun for a GPU need not wait until PyTorch is imported.
NVML sees all GPUs; `CUDA_VISIBLE_DEVICES` says which of them count.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def count() -> int | None:
    """GPUs by NVML, cut to those that are visible; None where that cannot be told: then only PyTorch knows.

    That is so without NVML, and where GPUs are named by UUID, as parts of one (MIG) are.
    """
    chosen, is_told = _chosen()
    if not is_told:
        return None
    there = _ask(lambda nvml: int(nvml.nvmlDeviceGetCount()))
    return there if there is None or chosen is None else num_chosen(chosen, there)


def uuid(index: int) -> str | None:
    """The UUID of what PyTorch will call `cuda:index`; None where that cannot be told.

    CUDA may count GPUs that are not alike in another order: who acts on this has to look again, once it has PyTorch.
    """
    chosen, _ = _chosen()
    there = count()
    if there is None or index >= there:
        return None
    number = index if chosen is None else chosen[index]
    return _ask(lambda nvml: str(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(number))))


def num_chosen(chosen: list[int], there: int) -> int:
    """As CUDA reads its list: it ends where no GPU has that number, and one that names a GPU twice names nothing."""
    if len(set(chosen)) < len(chosen):
        return 0
    return next((position for position, index in enumerate(chosen) if index >= there), len(chosen))


def _chosen() -> tuple[list[int] | None, bool]:
    """The GPUs that are visible, by number (None for all), and whether they are named by number at all."""
    told = os.environ.get("CUDA_VISIBLE_DEVICES")
    if told is None:
        return None, True
    names = [name.strip() for name in told.split(",")] if told.strip() else []
    return [int(name) for name in names if name.isdecimal()], all(name.isdecimal() for name in names)


def _ask(question: Callable[[Any], T]) -> T | None:
    """What NVML answers; None where it is not there, or fails."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
        try:
            return question(nvml)
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError:
        return None
