"""`triton.language` bound to the interpreter's builder, once and for good.

Stock Triton rebinds its whole language at every launch and at every call of a device function, which is where most of
its two milliseconds a program go. A process that interprets never compiles (it could not), so here it is done once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import triton.language as tl
import triton.language.extra.cuda as cuda_extra
from triton.language.extra import libdevice as generic_libdevice
from triton.language.extra.cuda import gdc, libdevice, utils
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter as stock

from kerneldojo.devices.interpreter import speed
from kerneldojo.devices.interpreter.builder import Builder
from kerneldojo.devices.interpreter.reductions import reducer, scanner
from kerneldojo.devices.interpreter.rewriting import integer, support


class _Permanent:
    """Stands in for the scope with which stock Triton would undo its patches."""

    def set_attr(self, owner: object, name: str, value: object) -> None:
        setattr(owner, name, value)


def bind(builder: Builder) -> Any:
    """Bind every built-in of the language to `builder`.

    Returns:
        Triton's `TritonSemantic` over it.
    """
    speed.install()
    semantic: Any = TritonSemantic(builder)
    for owner in (tl, tl.core, tl.math, tl.tensor, tl.core.tensor_descriptor_base, libdevice, gdc, utils, cuda_extra):
        for name, member in inspect.getmembers(owner):
            if tl.core.is_builtin(member):
                setattr(owner, name, _bound(member, semantic))
    scope: Any = _Permanent()
    stock._patch_lang_tensor(tl.tensor, scope)  # pyright: ignore[reportPrivateUsage]
    for language in (tl, tl.core):
        stock._patch_lang_core(language, scope)  # pyright: ignore[reportPrivateUsage]
        _bind_statements(language, builder, semantic)
    _bind_scalars()
    _bind_libdevice(generic_libdevice, libdevice)
    return semantic


def _bound(member: Callable[..., Any], semantic: Any) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs["_semantic"] = semantic
        return member(*args, **kwargs)

    call.__name__ = getattr(member, "__name__", "builtin")
    return call


def _bind_statements(language: Any, builder: Builder, semantic: Any) -> None:
    """What the language has beside operations: ranges, reductions, and output."""

    counted = support(semantic)["range"]

    def static_range(start: Any, end: Any = None, step: Any = 1, **options: Any) -> range:
        first, last = (0, start) if end is None else (start, end)
        return range(integer(first), integer(last), integer(step))

    def loop(arg1: Any, arg2: Any = None, step: Any = None, **options: Any) -> Any:
        bounds = (0, arg1) if arg2 is None else (arg1, arg2)
        return counted(*bounds, 1 if step is None else step)

    def silent(*args: Any, **kwargs: Any) -> None:
        """Nothing that a kernel prints reaches anyone."""

    language.static_range = static_range
    language.range = loop
    language.static_print = silent
    language.device_print = silent
    language.reduce = reducer(builder)
    language.associative_scan = scanner(builder)


def _bind_scalars() -> None:
    """Truth and index of a tensor of one element, also with numpy 2.4, which refuses `int()` of a 1-d array."""
    tensor: Any = tl.tensor

    def truth(self: Any) -> bool:
        # The front end itself asks whether an optional block is there, so a block is true. A kernel that branches on
        # a block does not compile.
        data = self.handle.data
        return bool(data.reshape(-1)[0]) if data.size == 1 else True

    tensor.__bool__ = truth
    tensor.__index__ = integer


def _bind_libdevice(generic: ModuleType, nvidia: ModuleType) -> None:
    """Fill the portable module's empty functions, which the compiler would map to NVIDIA's."""
    for name, member in inspect.getmembers(generic, inspect.isfunction):
        if member.__module__ == generic.__name__ and hasattr(nvidia, name):
            setattr(generic, name, getattr(nvidia, name))
