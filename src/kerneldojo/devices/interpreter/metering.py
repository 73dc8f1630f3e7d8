"""The meter: everything that one call of a model launches, in order, own kernels and library operations alike."""

from __future__ import annotations

import math
from collections.abc import Iterable
from types import TracebackType
from typing import Any

import torch
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from kerneldojo.devices.interpreter.launching import OPTIONS, STATE, Launch, without_modes
from kerneldojo.devices.interpreter.ledger import Ledger
from kerneldojo.devices.interpreter.library import Storages, made_by, met_by, operation
from kerneldojo.devices.interpreter.tally import Region, Tally
from kerneldojo.devices.interpreter.unwritten import Unwritten
from kerneldojo.devices.work import Argument, Configuration, Constant, KernelName, Specialization, Traffic, Work

LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


class Meter:
    """Context manager that fills `works` and `specializations` while code runs in it.

    Counts are exact: distinct bytes by the addresses that were touched, FLOPs by the operations that were done. Memory
    that is written by library operations and kernels stays alive until the meter is dropped. Memory that nobody has
    written yet is NaN.

    Args:
        ledger: what tells bytes that no counted work wrote; without one they are not told.
    """

    def __init__(self, ledger: Ledger | None = None) -> None:
        self._ledger = ledger
        self.works: list[Work] = []
        self._specializations: dict[str, Specialization] = {}
        self._kernels: list[Any] = []
        self._storages = Storages()
        self._mode = _Dispatched(self)
        self._outer: Any = None

    @property
    def specializations(self) -> list[Specialization]:
        """Every distinct specialization of own kernels, in the order of first launch."""
        return list(self._specializations.values())

    def __enter__(self) -> Meter:
        self._outer, STATE.listener = STATE.listener, self
        self._mode.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._mode.__exit__(kind, error, trace)
        STATE.listener = self._outer

    def begin(self, launch: Launch) -> Tally:
        """Called by a launch before its first program."""
        regions: dict[int, Region] = {}
        tensors = _tensors(launch.arguments.values())
        for tensor in tensors:
            start, stop, number = self._storages.place(tensor)
            regions[number] = Region(number, start, stop - start)
        # Before the first program: one that fails may be one that would not have compiled.
        specialization = specialize(launch)
        self._specializations.setdefault(specialization.key, specialization)
        with without_modes():
            return Tally(list(regions.values()), self._outside(tensors))

    def end(self, launch: Launch, tally: Tally) -> None:
        """Called by a launch after its last program."""
        key = specialize(launch).key
        if not any(kernel is launch.function for kernel in self._kernels):
            self._kernels.append(launch.function)
        identity = next(i for i, kernel in enumerate(self._kernels) if kernel is launch.function)
        reads = tally.traffic("read")
        self._account(launch, tally, reads)
        self.works.append(
            Work(
                own=True,
                name=launch.function.__name__[:200],
                identity=identity,
                specialization=key,
                grid=launch.grid,
                num_programs=math.prod(launch.grid),
                num_warps=_number(launch.options.get("num_warps"), 4),
                num_launches=1 if math.prod(launch.grid) else 0,
                reads=reads,
                writes=tally.traffic("write"),
                accessed_bytes=tally.accessed_bytes,
                products=tally.flops(),
                operand_bytes=tally.operand_bytes,
                arithmetic=float(tally.arithmetic),
                special=float(tally.special),
            )
        )

    def _account(self, launch: Launch, tally: Tally, reads: tuple[Traffic, ...]) -> None:
        """Note what a launch wrote, and what it read that nothing counted had written."""
        if self._ledger is None:
            return
        with without_modes():
            written = {item.storage: item.num_bytes for item in tally.traffic("write")}
            for tensor in _tensors(launch.arguments.values()):
                self._wrote(tensor, written.get(self._storages.number(tensor), 0), tally.outside)
            self._from_outside(item.num_bytes for item in reads if item.storage in tally.outside)
            if any(tally.elsewhere.values()):
                self._from_outside([self._ledger.outside_bytes(tally.elsewhere["read"], tally.elsewhere["write"])])

    def _wrote(self, tensor: torch.Tensor, num_bytes: int, outside: frozenset[int]) -> None:
        """Account for a buffer, unless most of what it holds may still be what came from outside."""
        start, stop, number = self._storages.place(tensor)
        if self._ledger and num_bytes and (number not in outside or num_bytes >= stop - start):
            self._ledger.note(tensor)

    def _outside(self, tensors: Iterable[torch.Tensor]) -> frozenset[int]:
        """Storages of those tensors that hold what came from outside; to be asked without modes."""
        ledger = self._ledger
        return frozenset(self._storages.number(t) for t in tensors if ledger.is_outside(t)) if ledger else frozenset()

    def _from_outside(self, counts: Iterable[int]) -> None:
        num_bytes = sum(counts)
        if num_bytes:
            reads = (Traffic(storage=0, num_bytes=num_bytes),)
            self.works.append(Work(own=False, name="off the meter", pattern="outside", num_launches=0, reads=reads))

    def returned(self, tensors: Iterable[torch.Tensor]) -> None:
        """What a call answers is read by whoever called it."""
        with without_modes():
            for tensor in tensors:
                self._from_outside(tensor.numel() * tensor.element_size() for _ in self._outside([tensor]))

    def dispatching(self, function: Any, args: Any, kwargs: Any) -> frozenset[int]:
        """Called before each operation of the library; which storages hold what came from outside."""
        if self._ledger is None or function.is_view:
            return frozenset()
        with without_modes():
            return self._outside(met_by(function, args, kwargs))

    def dispatched(self, function: Any, args: Any, kwargs: Any, output: Any, outside: frozenset[int]) -> None:
        """Called after each operation of the library."""
        work = operation(function, args, kwargs, output, self._storages)
        if work is not None:
            self._from_outside(item.num_bytes for item in work.reads if item.storage in outside)
            self.works.append(work)
        if self._ledger is not None and not function.is_view:
            for tensor in made_by(function, args, kwargs, output):
                self._wrote(tensor, tensor.numel() * tensor.element_size(), outside)


class _Dispatched(Unwritten):
    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self._meter = meter

    def operate(self, function: Any, args: Any, kwargs: Any) -> Any:
        outside = self._meter.dispatching(function, args, kwargs)
        output = super().operate(function, args, kwargs)
        with without_modes():
            self._meter.dispatched(function, args, kwargs, output, outside)
        return output


def specialize(launch: Launch) -> Specialization:
    """What the compiler would be given for this launch, as plain data."""
    arguments = tuple(
        _argument(parameter.name, spec, value)
        for parameter, spec, value in zip(
            launch.binder.params, launch.specialization, launch.arguments.values(), strict=True
        )
    )
    return Specialization(
        kernel=_kernel_name(launch.function.fn),
        arguments=arguments,
        options=_options(launch.options),
        alternatives=tuple(
            Configuration(
                constants={name: constant(value) for name, value in config.kwargs.items() if name not in OPTIONS},
                options=_options({**config.kwargs, **config.all_kwargs()}),
            )
            for config in launch.alternatives
        ),
    )


def constant(value: Any) -> Constant:
    """Tag a compile-time value.

    Raises:
        TypeError: it is of a kind that no kernel can be compiled with.
    """
    match value:
        case tl.constexpr():
            return constant(value.value)
        case None:
            return Constant(kind="none")
        case bool():
            return Constant(kind="bool", text="true" if value else "false")
        case int():
            return Constant(kind="int", text=str(value))
        case float():
            return Constant(kind="float", text=value.hex())
        case str():
            return Constant(kind="str", text=value)
        case tl.dtype():
            return Constant(kind="dtype", text=str(value.name))
        case InterpretedFunction():
            name = _kernel_name(value.fn)
            return Constant(kind="function", text=f"{name.module}:{name.qualname}:{name.line}")
        case tuple() | list():
            return Constant(kind="tuple", items=tuple(constant(item) for item in value))
        case _:
            raise TypeError(f"a {type(value).__name__} cannot be a compile-time argument of a kernel")


def _argument(name: str, spec: Any, value: Any) -> Argument:
    kind, assumed = spec
    if isinstance(kind, tuple):
        items = tuple(_argument("", (k, a), v) for k, a, v in zip(kind, assumed, value, strict=True))
        return Argument(name=name, type="tuple", items=items)
    if kind == "constexpr":
        return Argument(name=name, type=kind, constant=constant(value))
    return Argument(name=name, type=kind, aligned=assumed == "D")


def _options(options: dict[str, Any]) -> dict[str, int | bool | None]:
    return {name: options[name] for name in LAUNCH_OPTIONS if isinstance(options.get(name), int)}


def _kernel_name(function: Any) -> KernelName:
    code = function.__code__
    return KernelName(module=function.__module__[:200], qualname=function.__qualname__[:200], line=code.co_firstlineno)


def _number(value: Any, default: int) -> int:
    return value if isinstance(value, int) else default


def _tensors(values: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, TensorDescriptor):
            found += _tensors([value.base])
        elif isinstance(value, tuple):
            found += _tensors(value)
        elif hasattr(value, "base") and isinstance(value.base, torch.Tensor):  # A reinterpreted tensor.
            found.append(value.base)
    return found
