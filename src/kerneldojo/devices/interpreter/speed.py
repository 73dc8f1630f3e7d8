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

    sizes: tuple[int, ...]
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
            key,
            tl.tuple(list(key)),
            _core.validate_block_shape(key),
            tl.tuple([tl.constexpr(size) for size in key]),
            tl.constexpr(math.prod(key)),
        )
        _shapes[key] = found
    return found


_SCALAR = Shape((), (), 1, tl.tuple([]), tl.constexpr(1))


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


_PLAIN = frozenset({tl.tensor, tl.dtype, int, float, bool, str, type(None)})
"""Types of what is no constexpr and holds none."""


def _unwrap(value: Any) -> Any:
    return value if type(value) in _PLAIN else _stock_unwrap(value)


_stock_broadcast: Any = TritonSemantic.broadcast_impl_value


def _broadcast(self: Any, lhs: Any, rhs: Any) -> Any:
    ours, theirs = getattr(lhs.type, "derived", None), getattr(rhs.type, "derived", None)
    if ours is theirs:
        return lhs, rhs
    if theirs is None:
        return lhs, _splat(self, rhs, lhs.type)
    if ours is None:
        return _splat(self, lhs, rhs.type), rhs
    sizes = _common(ours.sizes, theirs.sizes)
    if sizes is None:
        return _stock_broadcast(self, lhs, rhs)
    return _stretched(self, lhs, ours, sizes), _stretched(self, rhs, theirs, sizes)


_common_sizes: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[int, ...] | None] = {}


def _common(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape of two blocks of one rank together; None if they have none, or differ in rank."""
    key = left, right
    if key not in _common_sizes:
        fits = len(left) == len(right) and all(a == b or 1 in (a, b) for a, b in zip(left, right, strict=True))
        _common_sizes[key] = tuple(b if a == 1 else a for a, b in zip(left, right, strict=True)) if fits else None
    return _common_sizes[key]


def _stretched(self: Any, block: Any, shape: Shape, sizes: tuple[int, ...]) -> Any:
    """A block in a shape that its own fits."""
    if shape.sizes == sizes:
        return block
    kind = tl.block_type(block.type.scalar, list(sizes))
    return tl.tensor(self.builder.create_broadcast(block.handle, sizes), kind)


def _splat(self: Any, scalar: Any, block: Any) -> Any:
    """A scalar tensor in the shape of a block type."""
    kind = block.with_element_ty(scalar.dtype)
    return tl.tensor(self.builder.create_splat(kind, scalar.handle), kind)


_stock_binary: Any = TritonSemantic.binary_op_type_checking_impl
_INT_MIN, _INT_END = -(2**31), 2**31


def _binary(self: Any, lhs: Any, rhs: Any, *allowed: Any, **options: Any) -> tuple[Any, Any]:
    """Operands brought to one type and shape: the cases of most operations at once, all others as ever.

    Two tensors of one type keep it, a pointer takes an integer beside it, and a number beside a tensor takes the
    tensor's type if its kind is not higher.
    """
    if type(lhs) is tl.tensor and type(rhs) is tl.tensor:
        if _need_no_check(lhs.dtype, rhs.dtype, allowed):
            return _broadcast(self, lhs, rhs)
    elif options.get("arithmetic_check", True) and (len(allowed) < 3 or allowed[2]):
        if type(lhs) is tl.tensor:
            if _fits(rhs, lhs.dtype):
                return lhs, _like(lhs, rhs)
        elif type(rhs) is tl.tensor and _fits(lhs, rhs.dtype):
            return _like(rhs, lhs), rhs
    return _stock_binary(self, lhs, rhs, *allowed, **options)


def _need_no_check(left: Any, right: Any, allowed: tuple[Any, ...]) -> bool:
    """Whether two tensors stay what they are: of one type that no operation promotes, or a pointer and an offset."""
    if type(left) is tl.pointer_type:
        return bool(allowed) and allowed[0] is True and (right is tl.int32 or right is tl.int64)
    return left is right and (left is tl.float32 or left is tl.int32 or left is tl.int64 or left is tl.int1)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a number takes the type `kind` of the tensor beside it, and nothing can be wrong with that."""
    if type(value) is int:
        return _INT_MIN <= value < _INT_END and (kind is tl.float32 or kind is tl.int32 or kind is tl.int64)
    return type(value) is float and kind is tl.float32


def _like(tensor: Any, value: Any) -> Any:
    """A number as a tensor of the same type and shape; zero has no sign, as in the stock front end."""
    derived: Shape | None = tensor.type.__dict__.get("derived")
    sizes = derived.sizes if derived is not None else (1,)
    data = np.full(sizes, value or 0, numpy_dtype(tensor.dtype))
    return tl.tensor(stock.TensorHandle(data, tensor.dtype), tensor.type)


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
    semantic.binary_op_type_checking_impl = _binary
    _core._unwrap_if_constexpr = _unwrap
    _stock._get_np_dtype = numpy_dtype
    handle: Any = stock.TensorHandle
    # Its check that no array is wider than its type costs as much as the smaller operations themselves.
    handle.__post_init__ = lambda self: None
