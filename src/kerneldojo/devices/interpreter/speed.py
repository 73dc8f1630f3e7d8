"""The front end's bookkeeping, remembered instead of repeated.

For every operation Triton's front end builds new type and shape objects, which is nothing while compiling but most of
the time while interpreting. A kernel has few distinct shapes, so each is built once here. Nothing that is computed
changes.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter as stock


class Shape(NamedTuple):
    """What the front end derives from a shape."""

    of_type: Any
    """The shape of a block type: Triton's tuple of ints."""
    num_elements: int
    of_tensor: Any
    """The shape of a tensor: Triton's tuple of constexprs."""
    numel: Any


_shapes: dict[tuple[int, ...], Shape] = {}
_dtypes: dict[str, Any] = {}


def numpy_dtype(dtype: Any) -> Any:
    """The numpy type in which the interpreter stores a Triton type."""
    element: Any = dtype.element_ty if isinstance(dtype, tl.block_type) else dtype
    if isinstance(element, tl.pointer_type):
        return np.dtype(np.uint64)
    found = _dtypes.get(element.name)
    if found is None:
        found = _dtypes[element.name] = _stock_dtype(element)
    return found


_stock: Any = stock
_core: Any = tl.core
_stock_dtype: Any = _stock._get_np_dtype


def _shape(sizes: Any) -> Shape:
    items = sizes.values if isinstance(sizes, tl.tuple) else sizes
    key = tuple(item.value if isinstance(item, tl.constexpr) else item for item in items)
    found = _shapes.get(key)
    if found is None:
        if not key:
            raise TypeError("0d block_type is forbidden")
        found = Shape(
            tl.tuple(list(key)),
            _core.validate_block_shape(key),
            tl.tuple([tl.constexpr(size) for size in key]),
            tl.constexpr(math.prod(key)),
        )
        _shapes[key] = found
    return found


_SCALAR = Shape((), 1, tl.tuple([]), tl.constexpr(1))


def _block_type(self: Any, element_ty: Any, shape: Any) -> None:
    derived = _shape(shape)
    self.element_ty = element_ty
    self.shape = derived.of_type
    self.numel = derived.num_elements
    self.derived = derived


def _with_element_ty(self: Any, scalar_ty: Any) -> Any:
    if scalar_ty is self.element_ty:
        return self
    made: Any = object.__new__(tl.block_type)
    made.element_ty = scalar_ty
    made.shape, made.numel, made.derived = self.shape, self.numel, self.derived
    return made


def _tensor(self: Any, handle: Any, type: Any) -> None:
    derived: Shape = type.__dict__.get("derived", _SCALAR)
    self.handle = handle
    self.type = type
    self.dtype = type.scalar
    self.shape = derived.of_tensor
    self.numel = derived.numel


_stock_unwrap: Any = _core._unwrap_if_constexpr


def _unwrap(value: Any) -> Any:
    return value if type(value) is tl.tensor else _stock_unwrap(value)


_stock_broadcast: Any = TritonSemantic.broadcast_impl_value


def _broadcast(self: Any, lhs: Any, rhs: Any) -> Any:
    ours = getattr(lhs.type, "derived", None)
    return (lhs, rhs) if ours is getattr(rhs.type, "derived", None) else _stock_broadcast(self, lhs, rhs)


def install() -> None:
    """Replace the constructors and conversions that take most of the time."""
    block_type: Any = tl.block_type
    block_type.__init__ = _block_type
    block_type.with_element_ty = _with_element_ty
    block_type.name = property(lambda self: f"<{self.shape}, {self.element_ty}>")
    tensor: Any = tl.tensor
    tensor.__init__ = _tensor
    semantic: Any = TritonSemantic
    semantic.broadcast_impl_value = _broadcast
    _core._unwrap_if_constexpr = _unwrap
    _stock._get_np_dtype = numpy_dtype
    handle: Any = stock.TensorHandle
    # Its check that no array is wider than its type costs as much as the smaller operations themselves.
    handle.__post_init__ = lambda self: None
