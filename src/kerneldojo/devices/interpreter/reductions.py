"""`tl.reduce` and `tl.associative_scan` over whole blocks, in a logarithmic number of steps.

The stock interpreter calls a custom combine function once for each element. A combine function is associative by
Triton's contract, so here neighbours are combined pairwise over the whole block: log2(n) calls for a reduction as for a
scan. The common reductions go straight to numpy, with the hardware's rule for NaN (the operand that is a number wins).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

from kerneldojo.devices.interpreter.builder import Builder
from kerneldojo.devices.interpreter.floats import Array, is_packed, narrow, widen
from kerneldojo.devices.interpreter.speed import numpy_dtype

Combine = Callable[..., Any]


def reducer(builder: Builder) -> Callable[..., Any]:
    """What stands in for `tl.reduce`."""

    def reduce(
        input: Any,
        axis: int | None,
        combine_fn: Any,
        keep_dims: bool = False,
        _semantic: Any = None,
        _generator: Any = None,
    ) -> Any:
        axis, keep_dims = _plain(axis), bool(_plain(keep_dims))
        several = isinstance(input, tuple | tl.tuple)
        blocks = list(input) if several else [input]
        shape = list(blocks[0].handle.data.shape)
        flat = [block if axis is not None else _flat(block) for block in blocks]
        along = (axis if axis >= 0 else axis + len(shape)) if axis is not None else 0
        if along >= flat[0].handle.data.ndim:
            raise ValueError(f"reduction axis {axis} is out of range for shape {shape}")
        _count(builder, flat[0], flat[0].handle.data.shape[along])
        known = _known_reduction(combine_fn)
        reduced = [known(flat[0], along)] if known and len(flat) == 1 else _fold(flat, along, combine_fn)
        kept = [1] * len(shape) if axis is None else [*shape[:along], 1, *shape[along + 1 :]]
        results = [
            tensor(data.reshape(kept) if keep_dims else data, block.dtype)
            for data, block in zip(reduced, flat, strict=True)
        ]
        return tuple(results) if several else results[0]

    return reduce


def scanner(builder: Builder) -> Callable[..., Any]:
    """What stands in for `tl.associative_scan`."""

    def associative_scan(
        input: Any,
        axis: int,
        combine_fn: Any,
        reverse: bool = False,
        _semantic: Any = None,
        _generator: Any = None,
    ) -> Any:
        axis, reverse = _plain(axis), bool(_plain(reverse))
        several = isinstance(input, tuple | tl.tuple)
        blocks = list(input) if several else [input]
        along = axis if axis >= 0 else axis + blocks[0].handle.data.ndim
        _count(builder, blocks[0], blocks[0].handle.data.shape[along])
        data = [np.moveaxis(block.handle.data, along, 0) for block in blocks]
        if reverse:
            data = [item[::-1] for item in data]
        types = [block.dtype for block in blocks]
        step = 1
        while step < data[0].shape[0]:
            # Blocks have powers of two, so all rows are combined and the first ones, which wrapped around, dropped.
            combined = _combine(combine_fn, [np.roll(x, step, axis=0) for x in data], data, types)
            data = [np.concatenate([old[:step], new[step:]]) for old, new in zip(data, combined, strict=True)]
            step *= 2
        if reverse:
            data = [item[::-1] for item in data]
        results = [tensor(np.moveaxis(x, 0, along), dtype) for x, dtype in zip(data, types, strict=True)]
        return tuple(results) if several else results[0]

    return associative_scan


def tensor(data: Array, dtype: Any) -> Any:
    """A block of values, or a scalar where nothing is left of its shape."""
    if not data.shape:
        return tl.tensor(TensorHandle(data.reshape(1), dtype.scalar), dtype.scalar)
    return tl.tensor(
        TensorHandle(np.ascontiguousarray(data), dtype.scalar), tl.block_type(dtype.scalar, list(data.shape))
    )


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value


def _flat(block: Any) -> Any:
    return tensor(block.handle.data.reshape(-1), block.dtype)


def _count(builder: Builder, block: Any, length: int) -> None:
    if builder.tally is not None and block.dtype.is_floating() and length:
        builder.tally.operation(block.handle.data.size - block.handle.data.size // length)


def _known_reduction(combine_fn: Any) -> Callable[[Any, int], Array] | None:
    """The common reductions, done by numpy."""
    standard: Any = tl.standard
    function: Any = {
        id(standard._sum_combine): np.add,
        id(standard._elementwise_max): np.fmax,
        id(standard._elementwise_min): np.fmin,
    }.get(id(combine_fn))
    if function is None:
        return None

    def compute(block: Any, axis: int) -> Array:
        dtype = block.dtype.scalar
        values = widen(block.handle.data, dtype)
        ufunc = function
        if not dtype.is_floating() and function is not np.add:
            ufunc = np.maximum if function is np.fmax else np.minimum
        stored = numpy_dtype(dtype)
        if is_packed(dtype):
            return narrow(ufunc.reduce(values, axis=axis), dtype)
        return np.asarray(ufunc.reduce(values, axis=axis, dtype=stored))

    return compute


def _fold(blocks: list[Any], axis: int, combine_fn: Combine) -> list[Array]:
    """Combine neighbours until one is left along `axis`; block lengths are powers of two."""
    data = [np.moveaxis(block.handle.data, axis, 0) for block in blocks]
    types = [block.dtype for block in blocks]
    while data[0].shape[0] > 1:
        data = _combine(combine_fn, [x[0::2] for x in data], [x[1::2] for x in data], types)
    return [x[0] for x in data]


def _combine(combine_fn: Combine, left: list[Array], right: list[Array], types: list[Any]) -> list[Array]:
    operands = [tensor(x, dtype) for side in (left, right) for x, dtype in zip(side, types, strict=True)]
    answer = combine_fn(*operands)
    answers = list(answer) if isinstance(answer, tuple | tl.tuple) else [answer]
    if len(answers) != len(types):
        raise ValueError(f"the combine function returned {len(answers)} values for {len(types)}")
    result: list[Array] = []
    for value, like, dtype in zip(answers, left, types, strict=True):
        stored = value.handle.data if isinstance(value, tl.tensor) else np.asarray(value)
        result.append(np.broadcast_to(stored.astype(numpy_dtype(dtype), copy=False), like.shape))
    return result
