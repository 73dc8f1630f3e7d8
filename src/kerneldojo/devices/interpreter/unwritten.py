"""Memory that nobody has written yet: NaN as it is handed out, as on a GPU.

What an earlier tensor left there is nobody's answer. Without this a candidate whose intermediate result happened to be
the right one would still be right with its kernels silenced, and one that never wrote its output might be.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kerneldojo.devices.interpreter.library import names, operator_name

ALLOCATORS = names("empty empty_like empty_strided new_empty new_empty_strided empty_permuted")
NAN_BYTE = 0xFF
"""All bits set are NaN in every floating-point type, and -1 in every integer."""


class Unwritten(TorchDispatchMode):
    """Context manager in which new memory is NaN; a `Meter` sees to that itself."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        spoil(func, output)
        return output


def spoil(function: Any, output: Any) -> None:
    """Fill with NaN what an operation has just handed out, if that is what it does."""
    if operator_name(function) in ALLOCATORS and output.device.type == "cpu" and output.layout == torch.strided:
        storage = output.untyped_storage()
        ctypes.memset(storage.data_ptr(), NAN_BYTE, storage.nbytes())
