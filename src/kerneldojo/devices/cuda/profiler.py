"""Device time of every kernel of a call, own kernels told from library kernels by identity.

CUPTI's activity records carry a kernel's name and duration but not the module it came from. They also carry a
correlation id, and CUPTI's callbacks say under the same id which function handle was launched: for a Triton kernel the
one that `silence.OwnKernels` saw being loaded, for a C++/CUDA extension one of those that its library registered
(`build.Builder.kernel_handles`). Names decide only for kernels launched by a CUDA graph, where there is no launch of
their own to look at.

A callback costs about 27 us a launch, which changes no duration on the device. All of this is read in the contestant
and therefore a claim.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import torch

from kerneldojo.devices.cuda import cubin
from kerneldojo.devices.cuda.build import Builder
from kerneldojo.devices.cuda.silence import OwnKernels

BUFFER_BYTES = 8 << 20
EVEN, EVEN_US = 1.2, 20.0
"""A launch that took more than so many times the median of its like, and so much longer, was interrupted: another
process' turn costs it a hundred microseconds at least."""

_HANDLE_WORD = {
    "cuLaunchKernel": 0,
    "cuLaunchKernel_ptsz": 0,
    "cuLaunchKernelEx": 1,
    "cuLaunchKernelEx_ptsz": 1,
    "cuLaunchCooperativeKernel": 0,
    "cuLaunchCooperativeKernel_ptsz": 0,
}
"""Which word of a launch function's arguments is the handle of what is launched."""


class _CallbackData(ctypes.Structure):
    """`CUpti_CallbackData`, as far as it is needed."""

    _fields_ = (
        ("site", ctypes.c_int),
        ("function_name", ctypes.c_char_p),
        ("parameters", ctypes.POINTER(ctypes.c_uint64)),
        ("return_value", ctypes.c_void_p),
        ("symbol_name", ctypes.c_char_p),
        ("context", ctypes.c_void_p),
        ("context_id", ctypes.c_uint32),
        ("correlation_data", ctypes.c_void_p),
        ("correlation_id", ctypes.c_uint32),
    )


Contents = dict[ModuleType, dict[str, Any]]
"""What the modules of a package hold."""


def contents(package: str) -> Contents:
    """What the loaded modules of `package` hold now."""
    return {module: dict(vars(module)) for name, module in sys.modules.items() if name.partition(".")[0] == package}


def restore(born: Contents) -> None:
    """Let modules hold what they held, and nothing else: the package's own functions look each other up there."""
    for module, held in born.items():
        for name in vars(module).keys() - held.keys():
            del vars(module)[name]
        vars(module).update(held)


@cache
def born() -> Contents:
    """CUPTI's modules as they are at the first call: before any candidate could put anything else in their place.

    Raises:
        ImportError: `cupti-python` is not installed.
    """
    importlib.import_module("cupti.cupti")
    return contents("cupti")


@dataclass(frozen=True)
class KernelRecord:
    """One piece of work on the device."""

    name: str
    """Mangled name of the kernel, or `memcpy` or `memset`."""
    duration_ns: int
    own: bool
    start_ns: int = 0


class Profiler:
    """Records kernels while a function runs. Make one per process.

    Args:
        own: the candidate's Triton kernels.
        builder: the candidate's C++/CUDA extensions.

    Raises:
        ImportError: `cupti-python` is not installed.
    """

    def __init__(self, own: OwnKernels, builder: Builder) -> None:
        restore(born())
        self._cupti: Any = next(module for module, held in born().items() if held["__name__"] == "cupti.cupti")
        self._own = own
        self._builder = builder
        self._records: list[Any] = []
        self._own_correlations: set[int] = set()
        self._handles: set[int] = set()
        kinds = self._cupti.ActivityKind
        self._kinds = (kinds.CONCURRENT_KERNEL, kinds.MEMCPY, kinds.MEMSET)
        self._words: dict[int, int] = {}
        self._buffers = (self._give_buffer, self._take_records)  # Kept: CUPTI holds no reference.
        self._cupti.activity_register_callbacks(*self._buffers)

    def profile(self, function: Callable[[], Any]) -> list[KernelRecord]:
        """Run `function` once and return what the device did, in no particular order."""
        cupti = self._cupti
        torch.cuda.synchronize()
        self._records.clear()
        self._own_correlations.clear()
        self._handles = self._builder.kernel_handles()
        subscriber = cupti.subscribe(self._on_call, None)
        try:
            self._enable_callbacks(subscriber)
            for kind in self._kinds:
                cupti.activity_enable(kind)
            try:
                function()
                torch.cuda.synchronize()
                cupti.activity_flush_all(1)
            finally:
                for kind in self._kinds:
                    cupti.activity_disable(kind)
        finally:
            cupti.unsubscribe(subscriber)
        names = self._own_names()
        return [self._record(record, names) for record in self._records]

    def _enable_callbacks(self, subscriber: Any) -> None:
        cupti = self._cupti
        for name, word in _HANDLE_WORD.items():
            identifier = getattr(cupti.driver_api_trace_cbid, name, None)
            if identifier is not None:
                self._words[int(identifier)] = word
                cupti.enable_callback(1, subscriber, cupti.CallbackDomain.DRIVER_API, identifier)

    def _on_call(self, _: Any, __: Any, identifier: Any, data: Any) -> None:
        raw = _CallbackData.from_address(int(data.ptr))
        word = self._words.get(int(identifier))
        if raw.site != 0 or word is None:
            return
        # A kernel may have been loaded since the profile began, so Triton's are looked up as they are launched.
        launched = int(raw.parameters[word])
        if launched in self._own.functions or launched in self._handles:
            self._own_correlations.add(int(raw.correlation_id))

    def _own_names(self) -> set[str]:
        names = set(self._own.functions.values())
        for library in self._builder.libraries:
            names.update(cubin.library_kernel_names(library))
        return names

    def _record(self, record: Any, own_names: set[str]) -> KernelRecord:
        kinds = self._cupti.ActivityKind
        name = {int(kinds.MEMCPY): "memcpy", int(kinds.MEMSET): "memset"}.get(int(record.kind))
        own = False
        if name is None:
            name = str(record.name)
            own = int(record.correlation_id) in self._own_correlations
            if not own and int(record.graph_node_id):
                own = name in own_names
        start = int(record.start)
        return KernelRecord(name=name, duration_ns=int(record.end) - start, own=own, start_ns=start)

    def _give_buffer(self) -> tuple[int, int]:
        return BUFFER_BYTES, 0

    def _take_records(self, records: Any) -> None:
        self._records.extend(records)


def summary(records: list[KernelRecord], num_calls: int) -> list[dict[str, Any]]:
    """Records of `num_calls` calls by kernel: `name`, `own`, `device_us` and `launches` a call, longest first."""
    totals: dict[tuple[str, bool], list[int]] = {}
    for record in records:
        totals.setdefault((record.name, record.own), []).append(record.duration_ns)
    rows = [
        {
            "name": name,
            "own": own,
            "device_us": sum(durations) / 1000 / num_calls,
            "launches": len(durations) / num_calls,
        }
        for (name, own), durations in totals.items()
    ]
    return sorted(rows, key=lambda row: -float(row["device_us"]))


def is_even(records: list[KernelRecord], num_calls: int) -> bool:
    """Whether every launch took about as long as the same one of the other calls: then nobody came between.

    A kernel that is launched several times a call is compared launch by launch, in order.
    """
    kinds: dict[str, list[KernelRecord]] = {}
    for record in records:
        kinds.setdefault(record.name, []).append(record)
    for launches in kinds.values():
        launches.sort(key=lambda record: record.start_ns)
        num_a_call = max(1, len(launches) // num_calls)
        for first in range(num_a_call):
            durations = sorted(record.duration_ns for record in launches[first::num_a_call])
            if durations[-1] > EVEN * durations[len(durations) // 2] + 1000 * EVEN_US:
                return False
    return True


def coverage(rows: list[dict[str, Any]]) -> float | None:
    """Own device time over total device time; None without any records."""
    total = sum(float(row["device_us"]) for row in rows)
    return sum(float(row["device_us"]) for row in rows if row["own"]) / total if total > 0 else None
