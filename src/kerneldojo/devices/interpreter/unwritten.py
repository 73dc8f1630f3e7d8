"""Memory that nobody has written yet: NaN as it is handed out, as on a GPU.

What an earlier tensor left there is nobody's answer. Without this a candidate whose intermediate result happened to be
the right one would still be right with its kernels silenced, and one that never wrote its output might be.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from kerneldojo.devices.interpreter.library import is_of_library, names, operator_name
from kerneldojo.problems.dispatching import Dispatching

ALLOCATORS = names("empty empty_like empty_strided new_empty new_empty_strided empty_permuted")
NAN_BYTE = 0xFF
"""All bits set are NaN in every floating-point type, and -1 in every integer."""
_DISPATCH: Any = torch._C  # pyright: ignore[reportPrivateUsage]
_ON_HOST = _DISPATCH.DispatchKeySet(_DISPATCH.DispatchKey.CPU)
"""What an operator that hosted code defined is carried out as, with this mode watching what it does inside."""


class Unwritten(Dispatching):
    """Context manager in which new memory is NaN."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not is_of_library(func):
            with self:
                return func.redispatch(_ON_HOST, *args, **(kwargs or {}))
        return self.operate(func, args, kwargs or {})

    def operate(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Carry out one operation of the library."""
        output = function(*args, **kwargs)
        if operator_name(function) in ALLOCATORS and not function._schema.is_mutable:
            _spoil(output)
        return output


def _spoil(fresh: torch.Tensor) -> None:
    if fresh.device.type == "cpu" and fresh.layout == torch.strided:
        storage = fresh.untyped_storage()
        ctypes.memset(storage.data_ptr(), NAN_BYTE, storage.nbytes())
