"""NVIDIA's libdevice in numpy: `libdevice.tanh` and its relatives, by the symbols that Triton links against.

A symbol is `__nv_`, a name, and for float32 an `f`. Single-precision intrinsics (`__nv_fast_expf`) are computed as well
as their exact relatives: an honest kernel loses nothing, and none may rely on their error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kerneldojo.devices.interpreter.errors import UnsupportedOnDevice

Array = npt.NDArray[Any]


def _by_torch(function: Callable[..., torch.Tensor]) -> Callable[..., Array]:
    """A special function that numpy lacks."""

    def compute(*operands: Array) -> Array:
        tensors = [torch.from_numpy(np.array(x)) for x in operands]
        return function(*tensors).numpy()

    return compute


erf = _by_torch(torch.erf)
"""The error function of an array."""


def _bits(function: Callable[[int, int], int]) -> Callable[[Array], Array]:
    """An integer function that needs the width of its operand."""

    def compute(x: Array) -> Array:
        width = x.dtype.itemsize * 8
        mask = (1 << width) - 1
        return np.array([function(int(v) & mask, width) for v in x.flat], dtype=np.int64).reshape(x.shape)

    return compute


def _round_away(x: Array) -> Array:
    return np.copysign(np.floor(np.abs(x) + np.asarray(0.5, x.dtype)), x)


def _remainder(x: Array, y: Array) -> Array:
    return x - y * np.rint(x / y)


def _norm(*x: Array) -> Array:
    return np.sqrt(np.sum([np.square(v.astype(np.float64)) for v in x], axis=0)).astype(x[0].dtype)


SAME_IN_NUMPY = (
    *("floor", "ceil", "trunc", "rint", "fabs", "abs", "fmin", "fmax", "copysign", "nextafter", "fmod", "ldexp"),
    *("sqrt", "cbrt", "hypot", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p"),
    *("sin", "cos", "tan", "sinh", "cosh", "tanh"),
)

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in SAME_IN_NUMPY},
    **{name: getattr(np, f"arc{name[1:]}") for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2")},
    "erf": erf,
    "erfc": _by_torch(torch.erfc),
    "erfinv": _by_torch(torch.erfinv),
    "erfcinv": _by_torch(lambda x: torch.erfinv(1 - x)),
    "erfcx": _by_torch(torch.special.erfcx),
    "normcdf": _by_torch(torch.special.ndtr),
    "normcdfinv": _by_torch(torch.special.ndtri),
    "lgamma": _by_torch(torch.lgamma),
    "tgamma": _by_torch(lambda x: torch.exp(torch.lgamma(x)) * torch.where((x < 0) & (torch.floor(x) % 2 != 0), -1, 1)),
    "j0": _by_torch(torch.special.bessel_j0),
    "j1": _by_torch(torch.special.bessel_j1),
    "y0": _by_torch(torch.special.bessel_y0),
    "y1": _by_torch(torch.special.bessel_y1),
    "cyl_bessel_i0": _by_torch(torch.special.i0),
    "cyl_bessel_i1": _by_torch(torch.special.i1),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "exp10": lambda x: np.power(np.asarray(10, x.dtype), x),
    "pow": np.power,
    "powi": lambda x, n: np.power(x, n.astype(x.dtype)),
    "fast_fdivide": np.divide,
    "saturate": lambda x: np.fmin(np.fmax(x, np.asarray(0, x.dtype)), np.asarray(1, x.dtype)),
    "sinpi": lambda x: np.sin(np.pi * x.astype(np.float64)).astype(x.dtype),
    "cospi": lambda x: np.cos(np.pi * x.astype(np.float64)).astype(x.dtype),
    "rhypot": lambda x, y: 1 / np.hypot(x, y),
    "norm3d": _norm,
    "norm4d": _norm,
    "rnorm3d": lambda *x: 1 / _norm(*x),
    "rnorm4d": lambda *x: 1 / _norm(*x),
    "scalbn": np.ldexp,
    "remainder": _remainder,
    "fma": lambda x, y, z: (x.astype(np.float64) * y + z).astype(x.dtype),
    "fdim": lambda x, y: np.fmax(x - y, np.asarray(0, x.dtype)),
    "logb": lambda x: np.floor(np.log2(np.abs(x))),
    "ilogb": lambda x: np.floor(np.log2(np.abs(x))),
    "round": _round_away,
    "llround": _round_away,
    "nearbyint": np.rint,
    "llrint": np.rint,
    "isnan": np.isnan,
    "isnand": np.isnan,
    "isinf": np.isinf,
    "isinfd": np.isinf,
    "finite": np.isfinite,
    "isfinited": np.isfinite,
    "signbit": np.signbit,
    "signbitd": np.signbit,
    "llabs": np.abs,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rcp": lambda x: 1 / x,
    "int_as_float": lambda x: x.view(np.float32),
    "uint_as_float": lambda x: x.view(np.float32),
    "float_as_int": lambda x: x.view(np.int32),
    "float_as_uint": lambda x: x.view(np.uint32),
    "longlong_as_double": lambda x: x.view(np.float64),
    "double_as_longlong": lambda x: x.view(np.int64),
    "popc": _bits(lambda v, _: v.bit_count()),
    "clz": _bits(lambda v, width: width - v.bit_length()),
    "ffs": _bits(lambda v, _: (v & -v).bit_length()),
    "brev": _bits(lambda v, width: int(f"{v:0{width}b}"[::-1], 2)),
    "mulhi": lambda x, y: ((x.astype(object) * y) >> (x.dtype.itemsize * 8)).astype(x.dtype),
    "hadd": lambda x, y: ((x.astype(np.int64) + y) >> 1).astype(x.dtype),
    "rhadd": lambda x, y: ((x.astype(np.int64) + y + 1) >> 1).astype(x.dtype),
    "mul24": lambda x, y: (x.astype(np.int64) * y).astype(x.dtype),
    "sad": lambda x, y, z: (np.abs(x.astype(np.int64) - y) + z).astype(z.dtype),
}
"""Functions by libdevice's name, without precision, width and rounding in it."""

ROUNDED = re.compile(r"^[fd]?(add|sub|mul|div|rcp|sqrt|rsqrt)_(rn)$|^(fmaf?)_(rn)$")
"""Arithmetic with a rounding in its name; only the default one is offered."""
INTEGER = re.compile(r"^u?(popc|clz|ffs|brev|mulhi|mul64hi|hadd|rhadd|mul24|sad)(ll)?$")
CONVERSION = re.compile(r"^(double|float|int|uint|ll|ull)2(double|float|int|uint|ll|ull)_(rn|rz|rd|ru)$")
ROUNDINGS: dict[str, Callable[[Array], Array]] = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}


def call(symbol: str, *operands: Array) -> Array:
    """Compute one function elementwise.

    Args:
        symbol: as in libdevice, for example `__nv_expf`.
        operands: arrays of one shape.

    Raises:
        UnsupportedOnDevice: the function is not known here.
    """
    function = _find(symbol.removeprefix("__nv_"))
    if function is None:
        raise UnsupportedOnDevice(f"the interpreter does not know the library function {symbol}")
    return np.asarray(function(*operands))


def _find(name: str) -> Callable[..., Any] | None:
    base = name.removeprefix("fast_") if name != "fast_fdividef" else "fast_fdivide"
    for candidate in (base, base.removesuffix("f")):
        if candidate in FUNCTIONS:
            return FUNCTIONS[candidate]
    if match := ROUNDED.match(base):
        return FUNCTIONS[match[1] or "fma"]
    if match := INTEGER.match(base):
        return FUNCTIONS["mulhi" if match[1] == "mul64hi" else match[1]]
    if match := CONVERSION.match(base):
        whole = match[2] not in ("double", "float")
        return ROUNDINGS[match[3]] if whole else (lambda x: x)
    return None
