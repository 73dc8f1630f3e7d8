"""The kernel that `target.warm_up` compiles."""

# pyright: basic
from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kerneldojo.devices.work import Argument, Constant, KernelName, Specialization

CAPABILITY = (9, 0)


@triton.jit
def _sample(x_ptr, y_ptr, length, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < length
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, tl.exp(x - tl.max(x, axis=0)) / tl.sum(x, axis=0), mask=mask)


_function: Any = _sample
SPECIALIZATION = Specialization(
    kernel=KernelName(module=__name__, qualname="_sample", line=_function.fn.__code__.co_firstlineno),
    arguments=(
        Argument(name="x_ptr", type="*fp32", aligned=True),
        Argument(name="y_ptr", type="*fp32", aligned=True),
        Argument(name="length", type="i32"),
        Argument(name="BLOCK", type="constexpr", constant=Constant(kind="int", text="256")),
    ),
)
