"""Number formats that numpy lacks, as NVIDIA hardware rounds them.

The interpreter keeps bfloat16 and the 8-bit floats as unsigned integers of the same width. Here they are widened to
float32, which holds them exactly, and rounded back to the nearest (ties to even). All functions are elementwise and
keep the shape.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import triton.language as tl

Array = npt.NDArray[Any]

FP8: dict[Any, torch.dtype] = {tl.float8e4nv: torch.float8_e4m3fn, tl.float8e5: torch.float8_e5m2}
"""The 8-bit floats of NVIDIA hardware."""

_fp8_values: dict[Any, Array] = {}


def is_packed(dtype: Any) -> bool:
    """Whether a Triton scalar type is stored as an integer that stands for a float."""
    return dtype == tl.bfloat16 or dtype in FP8


def widen(data: Array, dtype: Any) -> Array:
    """Stored values as numbers that numpy can compute with; packed floats become float32."""
    if dtype == tl.bfloat16:
        return (data.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if dtype in FP8:
        return _fp8_table(dtype)[data]
    return data


def narrow(values: Array, dtype: Any) -> Array:
    """Round numbers to a packed format and return the stored integers.

    Args:
        values: float32, or anything that casts to it without a second rounding.
        dtype: `tl.bfloat16` or one of `FP8`.
    """
    values = np.ascontiguousarray(values, dtype=np.float32)
    if dtype == tl.bfloat16:
        bits = values.view(np.uint32)
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
        return np.where(np.isnan(values), np.uint16(0x7FFF), rounded.astype(np.uint16))
    # cvt.rn.satfinite: what is too large, infinity included, becomes the largest finite value.
    largest = np.float32(torch.finfo(FP8[dtype]).max)
    clamped = np.where(np.isnan(values), values, np.clip(values, -largest, largest))
    packed = torch.from_numpy(np.ascontiguousarray(clamped)).to(FP8[dtype]).view(torch.uint8).numpy()
    return packed.reshape(values.shape)


def round_tf32(values: Array) -> Array:
    """Keep 10 bits of a float32's mantissa and drop the rest, as the operands of `tl.dot` are cut on Hopper.

    (Measured on an H200: errors of `tl.dot` are those of truncation, while cuBLAS rounds its operands beforehand.)
    """
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    cut = (bits & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(values), cut, values)


def to_integer(values: Array, dtype: npt.DTypeLike) -> Array:
    """Float to integer, towards zero; what does not fit saturates and NaN becomes 0, as `cvt.rzi` does."""
    kind: Any = np.dtype(dtype)
    limits = np.iinfo(kind)
    if limits.bits < 32:  # Converted through 32 bits, then cut off.
        return to_integer(values, np.int32).astype(dtype)
    wide = np.trunc(values.astype(np.float64))
    inside = (wide >= float(limits.min)) & (wide < float(limits.max) + 1.0)
    result = np.where(inside, wide, 0.0).astype(dtype)
    result = np.where(wide >= float(limits.max) + 1.0, limits.max, result)
    return np.where(wide < float(limits.min), limits.min, result).astype(dtype)


def _fp8_table(dtype: Any) -> Array:
    if dtype not in _fp8_values:
        every = torch.arange(256, dtype=torch.uint8).view(FP8[dtype])
        _fp8_values[dtype] = every.to(torch.float32).numpy()
    return _fp8_values[dtype]
