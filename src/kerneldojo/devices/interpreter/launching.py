"""Launching a kernel: bind its arguments as the compiler would, then run one program after the other.

This replaces the stock `InterpretedFunction.run`, through which every way of launching goes (`kernel[grid](...)`, a
captured `kernel[grid]`, `kernel.run`, autotuners, heuristics, aliases), so that silencing and metering miss none.
Unlike the stock one it neither rebinds the language nor copies tensors, and it refuses the keyword arguments and grids
that CUDA refuses.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
import torch.utils._python_dispatch as dispatch
import triton.language as tl
from triton.backends.compiler import BaseBackend
from triton.backends.nvidia.compiler import CUDAOptions
from triton.experimental.gluon._runtime import GluonJITFunction
from triton.runtime.interpreter import InterpretedFunction, TensorHandle
from triton.runtime.jit import KernelParam, create_function_from_signature
from triton.tools.tensor_descriptor import TensorDescriptor

from kerneldojo.devices.interpreter.builder import Builder
from kerneldojo.devices.interpreter.errors import UnsupportedOnDevice
from kerneldojo.devices.interpreter.language import bind
from kerneldojo.devices.interpreter.rewriting import check_called, rewrite
from kerneldojo.devices.interpreter.speed import numpy_dtype
from kerneldojo.devices.interpreter.tally import Tally

GRID_LIMITS = (2**31 - 1, 65535, 65535)
"""Largest grid that CUDA launches."""
OPTIONS = frozenset(CUDAOptions.__dataclass_fields__)
_AT_WORK = threading.RLock()
"""Held by the thread whose programs are run."""


@dataclass
class Launch:
    """One launch as it is about to happen."""

    function: Any
    """The kernel object (`InterpretedFunction`), whose identity tells own kernels apart."""
    binder: Binder
    arguments: dict[str, Any]
    specialization: list[Any]
    """For each parameter Triton's type and what the compiler may assume of its value."""
    options: dict[str, Any]
    grid: tuple[int, int, int]
    alternatives: tuple[Any, ...] = ()
    """All configurations of the autotuner that the launch came through."""


class Listener(Protocol):
    """What a meter does around each launch."""

    def begin(self, launch: Launch) -> Tally:
        """The counters for a launch."""
        ...

    def end(self, launch: Launch, tally: Tally) -> None:
        """The launch is over."""
        ...


@dataclass
class State:
    """What holds for every launch in this process."""

    builder: Builder = field(default_factory=Builder)
    semantic: Any = None
    silenced: int = 0
    listener: Listener | None = None
    alternatives: tuple[Any, ...] = ()
    """Configurations of the autotuner through which the next launch comes."""


STATE = State()


class Binder:
    """A kernel's parameters, and Triton's own rules for binding and typing arguments to them."""

    def __init__(self, function: Any) -> None:
        signature = inspect.signature(function.fn)
        options: dict[str, Any] = function.kwargs
        unspecialized = options.get("do_not_specialize") or ()
        unaligned = options.get("do_not_specialize_on_alignment") or ()
        self.params = [
            KernelParam(i, p, i in unspecialized or p.name in unspecialized, i in unaligned or p.name in unaligned)
            for i, p in enumerate(signature.parameters.values())
        ]
        self.constexprs = frozenset(p.name for p in self.params if p.is_constexpr)
        self._bind: Any = create_function_from_signature(signature, self.params, BaseBackend)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dict[str, Any], list[Any], dict[str, Any]]:
        """Arguments by name, their specialization, and launch options.

        Raises:
            TypeError, KeyError: as a launch on a GPU would.
        """
        arguments, specialization, options = self._bind(*args, **kwargs)
        for name in options:
            if name not in OPTIONS:
                raise KeyError(f"Keyword argument {name} was specified but unrecognised")
        return arguments, specialization, options


class WarmKernel:
    """What `kernel.warmup` returns: enough of a compiled kernel for code that sizes its grid by it.

    There is no compiler in this process, so registers and shared memory are the figures of an ordinary kernel.
    """

    n_regs = 32
    n_spills = 0

    def __init__(self, function: Any, options: dict[str, Any]) -> None:
        from types import SimpleNamespace

        self._function = function
        self._options = options
        self.metadata = SimpleNamespace(
            shared=4096, num_warps=options.get("num_warps", 4), num_stages=options.get("num_stages", 3), num_ctas=1
        )

    def _init_handles(self) -> None:
        """Nothing to load."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """Launch with compile-time arguments among the positional ones, as a compiled kernel is launched."""
        return lambda *args: self._function.run(*args, grid=grid, warmup=False, **self._options)


def install() -> None:
    """Replace the stock launch, device calls and language by those of this module. Once in a process."""
    STATE.semantic = bind(STATE.builder)
    patched: Any = InterpretedFunction
    patched.run = _run
    patched.__call__ = _call
    patched.rewrite = rewritten
    gluon: Any = GluonJITFunction
    gluon.run = _refuse_gluon


def rewritten(kernel: Any) -> Callable[..., Any]:
    """The function of a kernel or device function, with Triton's meanings; made once."""
    found = kernel.__dict__.get("_kerneldojo_rewritten")
    if found is None:
        found = kernel._kerneldojo_rewritten = rewrite(kernel.fn, STATE.semantic)
    return found


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    """A device function called from a kernel."""
    if STATE.builder.grid_idx is None:
        raise RuntimeError("Cannot call @triton.jit'd outside of the scope of a kernel")
    function = rewritten(self)
    check_called(self.fn, function)
    return function(*args, **kwargs)


def _refuse_gluon(*_: Any, **__: Any) -> None:
    """Launch what was never interpreted: its layouts are a GPU's."""
    raise UnsupportedOnDevice("Gluon needs a GPU; the interpreter runs Triton alone")


def _run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
    """Launch `self` over `grid`."""
    alternatives, STATE.alternatives = STATE.alternatives, ()
    if warmup:
        names = frozenset(self.arg_names)
        return WarmKernel(self, {k: v for k, v in kwargs.items() if k in OPTIONS and k not in names})
    for hook in self.pre_run_hooks:
        hook(*args, **kwargs)
    binder = self.__dict__.get("_kerneldojo_binder")
    if binder is None:
        binder = self._kerneldojo_binder = Binder(self)
    arguments, specialization, options = binder.bind(args, kwargs)
    # A silenced launch does all that the host would do, the grid function included, and runs no program.
    size = _normal_grid(grid, arguments)
    if STATE.silenced:
        return None
    _execute(Launch(self, binder, arguments, specialization, options, size, alternatives))
    return None


def _normal_grid(grid: Any, arguments: dict[str, Any]) -> tuple[int, int, int]:
    asked: Any = grid(arguments) if callable(grid) else grid
    sizes = [int(size) for size in tuple(asked)]
    if not 1 <= len(sizes) <= 3:
        raise ValueError(f"a grid has 1 to 3 dimensions, not {len(sizes)}")
    x, y, z = (*sizes, 1, 1)[:3]
    if any(size > limit for size, limit in zip((x, y, z), GRID_LIMITS, strict=True)) or min(x, y, z) < 0:
        raise RuntimeError("Triton Error [CUDA]: invalid argument")
    return x, y, z


def _execute(launch: Launch) -> None:
    with _AT_WORK:  # Of several threads one after the other, as on a device.
        if STATE.builder.grid_idx is not None:
            raise UnsupportedOnDevice("a kernel launched another kernel")
        _run_programs(launch)


def _run_programs(launch: Launch) -> None:
    builder = STATE.builder
    function = rewritten(launch.function)
    check_called(launch.function.fn, function)
    constexprs = launch.binder.constexprs
    values: dict[str, Any] = {
        name: _plain(value) if name in constexprs else device_value(value, spec)
        for (name, value), spec in zip(launch.arguments.items(), launch.specialization, strict=True)
    }
    tally = STATE.listener.begin(launch) if STATE.listener else None
    builder.tally = tally
    builder.set_grid_dim(*launch.grid)
    # Library functions inside an operation (erf and the like) are the kernel's work, not the library's.
    with (
        np.errstate(all="ignore"),
        without_modes(),
    ):
        try:
            for index in _programs(launch.grid):
                builder.grid_idx = index
                function(**values)
        finally:
            builder.grid_idx = None
            builder.tally = None
    if STATE.listener and tally is not None:
        STATE.listener.end(launch, tally)


@contextmanager
def without_modes() -> Generator[None]:
    """Torch as it is: no emulation of CUDA, no counting."""
    inner: Any = torch._C  # pyright: ignore[reportPrivateUsage]
    with dispatch._disable_current_modes(), inner.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
        yield


def _programs(grid: tuple[int, int, int]) -> Iterator[tuple[int, int, int]]:
    for z in range(grid[2]):
        for y in range(grid[1]):
            for x in range(grid[0]):
                yield x, y, z


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value


def device_value(value: Any, spec: Any) -> Any:
    """An argument as the kernel sees it: pointers and numbers become tensors of one element."""
    if value is None or isinstance(value, str | tl.dtype | InterpretedFunction):
        return value
    if isinstance(value, tl.constexpr):
        return value.value
    if isinstance(value, TensorDescriptor):
        return _descriptor(value)
    if isinstance(value, tuple):
        return tl.tuple([device_value(item, None) for item in value])  # pyright: ignore
    if hasattr(value, "data_ptr"):
        kind: Any = tl.str_to_ty(spec[0] if spec else _type_name(value), None)
        return tl.tensor(TensorHandle(np.array([value.data_ptr()], dtype=np.uint64), kind), kind)
    return _scalar(value, spec)


def _scalar(value: Any, spec: Any) -> Any:
    name = spec[0] if spec and spec[0] != "constexpr" else _type_name(value)
    if isinstance(name, str) and name.startswith("u1"):
        name = "i1"
    kind: Any = tl.str_to_ty(name, None)
    builder = STATE.builder
    constant = builder.get_fp32(float(value)) if isinstance(value, float) else None
    if constant is None:
        constant = TensorHandle(np.array([value]).astype(numpy_dtype(kind)), kind)
    elif kind != tl.float32:
        constant = builder.cast_impl(constant, kind)
    return tl.tensor(constant, kind)


def _type_name(value: Any) -> str:
    from triton._C.libtriton import native_specialize_impl

    return native_specialize_impl(BaseBackend, value, False, False, False)[0]


def _descriptor(value: TensorDescriptor) -> Any:
    strides: list[Any] = [device_value(s, None) for s in value.strides]
    strides[-1] = tl.constexpr(1)
    return STATE.semantic.make_tensor_descriptor(
        base=device_value(value.base, None),
        shape=[device_value(s, None) for s in value.shape],
        strides=strides,
        block_shape=[tl.constexpr(b) for b in value.block_shape],
        padding_option=value.padding,
    )


@contextmanager
def silenced() -> Generator[None]:
    """Launches do what the host has to do and run no program, so that what they would have written stays as it was."""
    STATE.silenced += 1
    try:
        yield
    finally:
        STATE.silenced -= 1
