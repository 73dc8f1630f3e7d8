"""The front end's shortcuts bring operands to the same types, shapes and bits as Triton's own checks."""

import itertools

import numpy as np
import pytest
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

from kerneldojo.devices.interpreter import speed
from kerneldojo.devices.interpreter.launching import STATE

KINDS = [tl.float32, tl.float16, tl.int32, tl.int64, tl.int1, tl.uint8, tl.pointer_type(tl.float32)]
SHAPES = [(), (4,), (1,), (2, 4), (2, 1)]
NUMBERS = [0, 3, -1, 2**31, 1.5, -0.0, True]
OPERATIONS = [((), {}), ((True, True), {}), ((True, False), {}), ((False, False, True, True), {}), ((False,) * 3, {})]
"""What is allowed of pointers, and whether types are brought together, as the front end's operations ask for it."""


def operand(kind, shape):
    data = np.arange(1, 1 + int(np.prod(shape))).reshape(shape or (1,)).astype(speed.numpy_dtype(kind))
    return tl.tensor(TensorHandle(data, kind), tl.block_type(kind, list(shape)) if shape else kind)


def outcome(check, left, right, allowed, options):
    try:
        pair = check(STATE.semantic, left, right, *allowed, **options)
    except Exception as error:
        return type(error)
    return [
        (str(x.type), str(x.dtype), x.handle.data.dtype, x.handle.data.shape, x.handle.data.tobytes()) for x in pair
    ]


@pytest.mark.parametrize(("allowed", "options"), OPERATIONS)
def test_operands_are_brought_together_as_ever(allowed, options):
    tensors = [operand(kind, shape) for kind, shape in itertools.product(KINDS, SHAPES)]
    pairs = [
        *itertools.product(tensors, tensors),
        *itertools.product(tensors, NUMBERS),
        *itertools.product(NUMBERS, tensors),
    ]
    for left, right in pairs:
        ours = outcome(speed._binary, left, right, allowed, options)
        stock = outcome(speed._stock_binary, left, right, allowed, options)
        assert ours == stock, f"{left} and {right}"


def test_blocks_come_to_one_shape_as_ever():
    shapes = [(), (1,), (4,), (2, 4), (2, 1), (1, 4), (1, 1), (4, 2), (2, 1, 4), (1, 2, 1), (2, 2, 4)]
    for left, right in itertools.product(shapes, shapes):
        for kinds in [(tl.float32, tl.int64), (tl.pointer_type(tl.float32), tl.int32)]:
            pair = [operand(kind, shape) for kind, shape in zip(kinds, (left, right), strict=True)]
            assert outcome(speed._broadcast, *pair, (), {}) == outcome(speed._stock_broadcast, *pair, (), {})
