"""Two other arithmetics for the reference: coarser products (TF32), and everything in float64.

Both are contexts for the process that runs the reference's forward. Neither changes the module: they sit below it, at
torch's dispatcher, where every operation passes with its final operands.

* `tf32_emulation` cuts the float32 operands of matrix products and convolutions to the 10-bit mantissa of TF32; sums
  stay in float32. Hardware does so in two ways: cuBLAS rounds to nearest before the tensor core, Triton's `tl.dot` on
  Hopper leaves it to the tensor core, which drops the low bits (2.7 times the error on signed operands, and a bias on
  positive ones; measured on an H200). Truncation is the coarsest that an honest kernel does, so it is the default.
* `float64_oracle` sends every float that the forward creates, or casts to, to float64, so that a module which itself
  says `.half()` or `dtype=torch.float32` is still computed exactly. Its parameters and inputs must be float64 already.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_map_only

from kerneldojo.problems import convolution
from kerneldojo.problems.dispatching import Dispatching

_KEPT_BITS = ~0x1FFF
_HALF = 0x0FFF

# Which positional arguments of an operation are the operands of its product.
_OPERANDS = {
    "aten::mm": (0, 1),
    "aten::bmm": (0, 1),
    "aten::addmm": (1, 2),
    "aten::baddbmm": (1, 2),
    "aten::addbmm": (1, 2),
    "aten::mv": (0, 1),
    "aten::addmv": (1, 2),
    "aten::linear": (0, 1),
    "aten::convolution": (0, 1),
    "aten::_convolution": (0, 1),
}

Rounding = Literal["nearest", "truncate"]

_NARROW = (torch.float32, torch.float16, torch.bfloat16)


def to_tf32(x: torch.Tensor, rounding: Rounding = "truncate") -> torch.Tensor:
    """Cut float32 values to 10 explicit mantissa bits: low bits dropped, or to nearest with ties to even.

    Other dtypes come back as they are.

    >>> x = torch.tensor([1.0 + 3 * 2.0**-11])
    >>> to_tf32(x).item(), to_tf32(x, "nearest").item()
    (1.0009765625, 1.001953125)
    """
    if x.dtype != torch.float32:
        return x
    bits = x.view(torch.int32)
    if rounding == "nearest":
        bits = bits + _HALF + ((bits >> 13) & 1)
    # Weights of gigabytes are cut as they lie, and no more than once. Infinity is left as it is by either rounding.
    return (bits & _KEPT_BITS).view(torch.float32).masked_fill_(x.isnan(), torch.nan)


class _CutOperands(Dispatching):
    def __init__(self, rounding: Rounding) -> None:
        super().__init__()
        self._rounding: Rounding = rounding

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        places = _OPERANDS.get(func.name().partition(".")[0])
        if places:
            args = tuple(
                to_tf32(value, self._rounding) if place in places and isinstance(value, torch.Tensor) else value
                for place, value in enumerate(args)
            )
        return func(*args, **(kwargs or {}))


@contextmanager
def tf32_emulation(rounding: Rounding = "truncate") -> Generator[None]:
    """Cut the float32 operands of products within the block, as tensor cores do.

    Works on any device; on a GPU, real TF32 must not be allowed at the same time. Attention is taken apart into its
    two products first. Recurrent layers that torch hands to oneDNN or cuDNN whole are not reached. Gradients do not
    pass.
    """
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), _CutOperands(rounding):
        yield


class _WidenFloats(Dispatching):
    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named: dict[str, Any] = dict(kwargs or {})
        if named.get("dtype") in _NARROW:
            named["dtype"] = torch.float64
        # Tensors that the module keeps as plain attributes were not converted with it.
        widen: Callable[[torch.Tensor], torch.Tensor] = _widened
        if func.name() != "aten::_to_copy" and not func._schema.is_mutable:
            args = tree_map_only(torch.Tensor, widen, args)
            named = {key: tree_map_only(torch.Tensor, widen, value) for key, value in named.items()}
        return convolution.by_channels(func, args) if convolution.is_slow(func, args) else func(*args, **named)


def _widened(x: torch.Tensor) -> torch.Tensor:
    return x.double() if x.dtype in _NARROW else x


@contextmanager
def float64_oracle() -> Generator[None]:
    """Compute in float64 whatever the module itself casts to; its parameters, buffers and inputs must be float64.

    Code that looks at bits (`view(torch.int32)`) breaks under it: such a problem has a float32 oracle instead.
    """
    previous = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), _WidenFloats():
            yield
    finally:
        torch.set_default_dtype(previous)
