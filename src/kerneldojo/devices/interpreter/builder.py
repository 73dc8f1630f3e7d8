"""The interpreter's arithmetic and memory, put right: bfloat16, TF32, NaN rules, libdevice, and counting.

Triton's front end calls a *builder* for every operation of a kernel. Compiling, it emits IR; interpreting, Triton's own
`InterpreterBuilder` computes with numpy at once. This one repairs what that computes wrongly (see each method), says
`UnsupportedOnDevice` for what it cannot compute, and counts floating-point work when a `Tally` listens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton._C.libtriton import interpreter as native
from triton._C.libtriton import ir
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from kerneldojo.devices.interpreter import libdevice
from kerneldojo.devices.interpreter.errors import UnsupportedOnDevice
from kerneldojo.devices.interpreter.floats import Array, is_packed, narrow, round_tf32, to_integer, widen
from kerneldojo.devices.interpreter.speed import numpy_dtype
from kerneldojo.devices.interpreter.tally import Tally
from kerneldojo.devices.work import Precision

BINARY: dict[str, Callable[..., Any]] = {
    "fadd": np.add,
    "fsub": np.subtract,
    "fmul": np.multiply,
    "frem": np.fmod,
    # PTX min and max return the operand that is a number; only the *imumf forms propagate NaN.
    "minnumf": np.fmin,
    "maxnumf": np.fmax,
    "minimumf": np.minimum,
    "maximumf": np.maximum,
}
DIVISIONS: dict[str, Callable[..., Any]] = {"fdiv": np.divide, "precise_divf": np.divide}
COMPARISONS: dict[str, Callable[..., Any]] = {
    "OLT": np.less,
    "OGT": np.greater,
    "OLE": np.less_equal,
    "OGE": np.greater_equal,
    "OEQ": np.equal,
    "ONE": np.not_equal,
    "ULT": np.less,
    "UGT": np.greater,
    "ULE": np.less_equal,
    "UGE": np.greater_equal,
    "UEQ": np.equal,
    "UNE": np.not_equal,
}
UNARY: dict[str, Callable[..., Any]] = {"floor": np.floor, "ceil": np.ceil, "fabs": np.abs}
SPECIAL: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "sqrt": np.sqrt,
    "precise_sqrt": np.sqrt,
    "rsqrt": lambda x: np.asarray(1, x.dtype) / np.sqrt(x),
    "erf": libdevice.erf,
}
PRODUCT_CLASS: dict[Any, Precision] = {
    tl.float64: "fp64",
    tl.float32: "fp32",
    tl.float16: "fp16",
    tl.bfloat16: "fp16",
    tl.int8: "int8",
    tl.uint8: "int8",
}


def _handle(data: Any, dtype: Any) -> TensorHandle:
    return TensorHandle(data, dtype)


def _store(values: Array, dtype: Any) -> TensorHandle:
    """A result rounded to its type: packed floats to their integers, everything else to numpy's own type."""
    if is_packed(dtype):
        return _handle(narrow(values, dtype), dtype)
    wanted = numpy_dtype(dtype)
    return _handle(values if values.dtype == wanted else values.astype(wanted), dtype)


class Builder(InterpreterBuilder):
    """Computes each operation at once; `tally` counts while it is set."""

    def __init__(self) -> None:
        super().__init__()
        self.options: Any = dataclasses.replace(
            self.options,
            # Overflow checks are for debug builds; here they only cost three operations each.
            sanitize_overflow=False,
            supported_fp8_dtypes=("fp8e5", "fp8e4b15", "fp8e4nv"),
            allowed_dot_input_precisions=("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"),
        )
        self.tally: Tally | None = None
        self.grid_idx: Any = None
        self.grid_dim: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("create_"):
            raise UnsupportedOnDevice(f"the interpreter has no operation {name.removeprefix('create_')}")
        raise AttributeError(name)

    # Programs

    def create_get_program_id(self, axis: int) -> TensorHandle:
        """Index of the running program."""
        if self.grid_idx is None:
            raise RuntimeError("Cannot call @triton.jit'd outside of the scope of a kernel")
        return _handle(np.array([self.grid_idx[axis]], dtype=np.int32), tl.int32)

    # Memory

    def create_load(self, ptr: Any, _0: Any, _1: Any, is_volatile: bool) -> TensorHandle:
        """Load without a mask."""
        return self._load(ptr, None, None)

    def create_masked_load(
        self, ptrs: Any, mask: Any, other: Any, cache_modifier: Any, eviction_policy: Any, is_volatile: bool
    ) -> TensorHandle:
        """Load under a mask; elements that are masked off read `other`, or 0."""
        return self._load(ptrs, mask if isinstance(mask, np.ndarray) else mask.data, other)

    def _load(self, ptrs: Any, mask: Array | None, other: Any) -> TensorHandle:
        dtype: Any = ptrs.get_element_ty()
        stored = numpy_dtype(dtype)
        if self.tally is not None:
            self.tally.memory("read", ptrs.data, mask, stored.itemsize)
        fill = np.zeros(ptrs.data.shape, stored) if other is None else other.data
        every = np.ones(ptrs.data.shape, np.bool_) if mask is None else mask
        return _handle(native.load(ptrs.data, every, fill, stored), dtype)

    def create_store(self, ptr: Any, val: Any, _0: Any, _1: Any) -> Any:
        """Store without a mask."""
        return self.create_masked_store(ptr, val, np.ones(ptr.data.shape, np.bool_), None, None)

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, cache_modifier: Any, eviction_policy: Any) -> Any:
        """Store under a mask."""
        selected = mask if isinstance(mask, np.ndarray) else mask.data
        if self.tally is not None:
            self.tally.memory("write", ptrs.data, selected, value.data.dtype.itemsize)
        return native.store(ptrs.data, value.data, selected)

    def create_atomic_cas(self, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> TensorHandle:
        """Compare and swap."""
        self._count_atomic(ptr.data, None, val.data.dtype.itemsize)
        return super().create_atomic_cas(ptr, cmp, val, sem, scope)

    def create_atomic_rmw(self, rmwOp: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> TensorHandle:
        """Read, modify, write; 16-bit floats, which the stock one refuses or mistakes for integers, included."""
        self._count_atomic(ptr.data, mask.data, val.data.dtype.itemsize)
        dtype: Any = val.dtype.scalar
        if dtype not in (tl.float16, tl.bfloat16) or rmwOp == ir.ATOMIC_OP.XCHG:
            return super().create_atomic_rmw(rmwOp, ptr, val, mask, sem, scope)
        if rmwOp != ir.ATOMIC_OP.FADD:
            raise UnsupportedOnDevice(f"the interpreter has no atomic {rmwOp} for {dtype}")
        return self._atomic_add_half(ptr.data, val, np.broadcast_to(mask.data, ptr.data.shape))

    def _atomic_add_half(self, pointers: Array, val: Any, mask: Array) -> TensorHandle:
        """Add in rounds, so that each address appears once in a round."""
        dtype: Any = val.dtype.scalar
        addresses, selected = np.ravel(pointers), np.ravel(mask)
        added = widen(np.broadcast_to(val.data, pointers.shape).ravel(), dtype).astype(np.float32)
        old = np.zeros(addresses.shape, numpy_dtype(dtype))
        left = np.flatnonzero(selected)
        while left.size:
            _, first = np.unique(addresses[left], return_index=True)
            now = left[first]
            every = np.ones(now.shape, np.bool_)
            old[now] = native.load(addresses[now], every, old[now], old.dtype)
            new = _store(widen(old[now], dtype).astype(np.float32) + added[now], dtype)
            native.store(addresses[now], new.data, every)
            left = np.delete(left, first)
        return _handle(old.reshape(pointers.shape), dtype)

    def _count_atomic(self, pointers: Array, mask: Array | None, size: int) -> None:
        if self.tally is not None:
            self.tally.memory("read", pointers, mask, size)
            self.tally.memory("write", pointers, mask, size)

    # Conversions

    def cast_impl(self, src: Any, dst_type: Any) -> TensorHandle:
        """Convert between numbers, rounding to the nearest even (the stock one truncates to bfloat16)."""
        source: Any = src.dtype.scalar
        target: Any = dst_type.scalar
        values = widen(src.data, source)
        if target.is_int() and not target.is_bool() and source.is_floating():
            return _handle(to_integer(values, numpy_dtype(target)), target)
        return _store(values, target)

    def create_fp_to_fp(self, src: Any, dst_type: Any, rounding_mode: Any) -> TensorHandle:
        """Convert between floats; only the AMD formats still go through the stock conversion."""
        formats = (src.dtype.scalar, dst_type.scalar)
        nvidia = all(f.primitive_bitwidth >= 16 or is_packed(f) for f in formats)
        if nvidia and rounding_mode in (None, ir.ROUNDING_MODE.RTNE):
            return self.cast_impl(src, dst_type)
        return super().create_fp_to_fp(src, dst_type, rounding_mode)

    # Arithmetic

    def _arithmetic(self, op: Callable[..., Any], dtype: Any, operands: tuple[Any, ...], special: bool) -> TensorHandle:
        values = op(*(widen(x.data, x.dtype.scalar) for x in operands))
        if self.tally is not None:
            self.tally.operation(values.size, special=special)
        return _store(values, dtype)

    def create_fma(self, x: Any, y: Any, z: Any) -> TensorHandle:
        """Multiply and add with one rounding (for float32 the product is exact in float64)."""
        dtype: Any = z.dtype.scalar
        exact = np.float64 if dtype == tl.float32 else None
        a, b, c = (widen(item.data, item.dtype.scalar) for item in (x, y, z))
        values = a.astype(exact) * b + c if exact else a * b + c
        if self.tally is not None:
            self.tally.operation(values.size, cost=2)
        return _store(values, dtype)

    def create_clampf(self, arg: Any, lo: Any, hi: Any, propagate_nans: Any) -> TensorHandle:
        """Clamp; a NaN becomes the lower bound unless NaNs are to propagate."""
        every = propagate_nans == ir.PROPAGATE_NAN.ALL
        low, high = (np.maximum, np.minimum) if every else (np.fmax, np.fmin)
        return self._arithmetic(lambda x, a, b: high(low(x, a), b), arg.dtype.scalar, (arg, lo, hi), special=False)

    def create_idiv(self, lhs: Any, rhs: Any) -> TensorHandle:
        """Integer division towards zero; dividing by zero gives something, as on a GPU."""
        divisor = np.where(rhs.data == 0, np.asarray(1, rhs.data.dtype), rhs.data)
        return _handle((lhs.data - np.fmod(lhs.data, divisor)) // divisor, lhs.dtype.scalar)

    def create_ashr(self, lhs: Any, rhs: Any) -> TensorHandle:
        """Arithmetic shift, without the stock one's side effect on its operands."""
        signed = np.dtype(f"int{lhs.data.dtype.itemsize * 8}")
        shifted = np.right_shift(lhs.data.view(signed), rhs.data.astype(signed))
        return _handle(shifted.view(lhs.data.dtype), lhs.dtype.scalar)

    def create_dot(self, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: int) -> TensorHandle:
        """Multiply matrices as the tensor cores do: operands rounded to their class, sums in float32."""
        precision = PRODUCT_CLASS.get(a.dtype.scalar, "fp8")
        left, right = widen(a.data, a.dtype.scalar), widen(b.data, b.dtype.scalar)
        if precision == "fp32" and input_precision == ir.INPUT_PRECISION.TF32:
            precision, left, right = "tf32", round_tf32(left), round_tf32(right)
        if self.tally is not None:
            batches = int(np.prod(left.shape[:-2], dtype=np.int64))
            flops = 2 * batches * left.shape[-2] * left.shape[-1] * right.shape[-1]
            self.tally.product(precision, flops, a.data.nbytes + b.data.nbytes)
        # Products of 8-bit integers are summed exactly in float64, which is much faster than numpy's integers.
        exact = precision in ("fp64", "int8")
        work: Any = np.float64 if exact else np.float32
        total = np.matmul(left.astype(work, copy=False), right.astype(work, copy=False))
        added = total + widen(d.data, d.dtype.scalar).astype(work, copy=False)
        return _store(added, d.dtype.scalar)

    # What only a GPU has, and what a judge must not let through

    def create_extern_elementwise(
        self,
        libName: str,
        libPath: str,
        symbol: str,
        argList: Any,
        retType: Any,
        isPure: bool,
    ) -> TensorHandle:
        """Call a function of libdevice by its symbol, such as `__nv_tanhf`."""
        values = libdevice.call(symbol, *(x.data for x in argList))
        if self.tally is not None:
            self.tally.operation(values.size, special=True)
        return _store(values, retType.scalar)

    def create_inline_asm(
        self,
        inlineAsm: str,
        constraints: Any,
        values: Any,
        type: Any,
        isPure: bool,
        pack: int,
    ) -> Any:
        """PTX needs a GPU."""
        raise UnsupportedOnDevice("inline assembly needs a GPU; the interpreter cannot run it")

    def create_print(self, prefix: Any, hex: Any, values: Any, isSigned: Any) -> None:
        """Nothing that a kernel prints reaches anyone."""


def _install_operations() -> None:
    """Give `Builder` one method for each entry of the tables above."""

    def arithmetic(op: Callable[..., Any], special: bool) -> Callable[..., TensorHandle]:
        def create(self: Builder, *operands: Any) -> TensorHandle:
            return self._arithmetic(op, operands[0].dtype.scalar, operands, special)  # pyright: ignore[reportPrivateUsage]

        return create

    def comparison(op: Callable[..., Any]) -> Callable[..., TensorHandle]:
        def create(self: Builder, lhs: Any, rhs: Any) -> TensorHandle:
            values = op(widen(lhs.data, lhs.dtype.scalar), widen(rhs.data, rhs.dtype.scalar))
            if self.tally is not None:
                self.tally.operation(values.size)
            return _handle(values, tl.int1)

        return create

    for table, special in ((BINARY, False), (DIVISIONS, True), (UNARY, False), (SPECIAL, True)):
        for name, op in table.items():
            setattr(Builder, f"create_{name}", arithmetic(op, special))
    for name, op in COMPARISONS.items():
        setattr(Builder, f"create_fcmp{name}", comparison(op))


_install_operations()
