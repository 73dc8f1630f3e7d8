"""CUDA, as far as host code can see it, on a machine without any.

Candidates and problems say `.cuda()`, `device="cuda"`, `assert x.is_cuda`, `torch.cuda.current_stream()`. Here every
host tensor claims to be on `cuda:0`, and every request for that device is served from host memory. A torch function
mode does the translation, since it sees factories, methods and attributes alike; `torch.cuda` gets functions that tell
of the emulated GPU. Everything is synchronous, so streams and events have nothing to order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kerneldojo.devices.interpreter.errors import UnsupportedOnDevice
from kerneldojo.devices.specs import GPU, gpu

CUDA = torch.device("cuda", 0)
HOST = torch.device("cpu")

_emulated: list[GPU] = [gpu("h100")]


def emulated_gpu() -> GPU:
    """The GPU that host code believes to run on."""
    return _emulated[0]


def use_gpu(spec: GPU) -> None:
    """Emulate another GPU from now on."""
    _emulated[0] = spec


def _translated(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "cuda":
        return HOST
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    return value


def _same(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return self


def _stays(self: torch.Tensor, *args: Any, **kwargs: Any) -> None:
    """Nothing to keep alive: everything is synchronous."""


def _device(self: torch.Tensor) -> torch.device:
    real = self.device
    return CUDA if real.type == "cpu" else real


_tensor: Any = torch.Tensor
REPLACED: dict[Any, Callable[..., Any]] = {
    _tensor.cuda: _same,
    _tensor.pin_memory: _same,
    _tensor.is_cuda.__get__: lambda self: self.device.type == "cpu",
    _tensor.is_cpu.__get__: lambda self: False,
    _tensor.device.__get__: _device,
    _tensor.get_device: lambda self: 0,
    _tensor.is_pinned: lambda self, *a: False,
}
"""What a host tensor answers in place of the truth. The functions run with the mode switched off."""


_NAMES_OF_DEVICES = (torch.device, str)


class CudaEmulation(TorchFunctionMode):
    """Translates requests for CUDA to the host, and the host's answers to CUDA."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        replaced = REPLACED.get(func)
        if replaced is not None:
            return replaced(*args, **kwargs)
        if func is torch.device:  # Naming a device asks for nothing yet.
            return func(*args, **kwargs)
        for value in args:
            if isinstance(value, _NAMES_OF_DEVICES):
                args = tuple(_translated(value) for value in args)
                break
        if func is _tensor.to and len(args) > 1 and type(args[1]) is int:
            args = (args[0], HOST, *args[2:])
        if "device" in kwargs:
            asked = kwargs["device"]
            kwargs = {**kwargs, "device": HOST if type(asked) is int else _translated(asked)}
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        return func(*args, **kwargs)


class Stream:
    """A stream of the emulated device: work is done before the call that asks for it returns."""

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        self.device = CUDA
        self.device_index = 0
        self.cuda_stream = 0
        self.priority = priority

    def synchronize(self) -> None:
        """Nothing is pending."""

    def wait_stream(self, stream: Any) -> None:
        """Nothing is pending."""

    def wait_event(self, event: Any) -> None:
        """Nothing is pending."""

    def record_event(self, event: Any = None) -> Any:
        """An event that has happened."""
        event = event or Event()
        event.record(self)
        return event

    def query(self) -> bool:
        """Everything is done."""
        return True

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: Any) -> None:
        return None


class Event:
    """An event of the emulated device; it reads the host's clock."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self._seconds: float | None = None

    def record(self, stream: Any = None) -> None:
        """Happen now."""
        self._seconds = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        """It has happened."""

    def synchronize(self) -> None:
        """It has happened."""

    def query(self) -> bool:
        """It has happened."""
        return True

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds of host time between two events."""
        if self._seconds is None or other._seconds is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (other._seconds - self._seconds) * 1e3


STREAM = Stream()


@contextmanager
def _nothing(*args: Any, **kwargs: Any) -> Generator[Any]:
    yield args[0] if args else None


SILENT = (
    "init",
    "set_device",
    "set_stream",
    "synchronize",
    "empty_cache",
    "ipc_collect",
    "reset_peak_memory_stats",
    "reset_max_memory_allocated",
)
"""Functions of `torch.cuda` with nothing to do."""
EMPTY = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "utilization")
"""Functions of `torch.cuda` that count what is not there."""


def _properties(device: Any = None) -> SimpleNamespace:
    spec = emulated_gpu()
    major, minor = spec.compute_capability
    return SimpleNamespace(
        name=spec.full_name,
        major=major,
        minor=minor,
        total_memory=spec.memory_bytes,
        multi_processor_count=spec.num_multiprocessors,
        warp_size=32,
        max_threads_per_multi_processor=spec.max_threads_per_multiprocessor,
        regs_per_multiprocessor=spec.registers_per_multiprocessor,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=spec.shared_bytes_per_block,
        shared_memory_per_multiprocessor=spec.shared_bytes_per_multiprocessor,
        L2_cache_size=spec.l2_bytes,
        is_integrated=False,
        is_multi_gpu_board=False,
    )


def _unsupported(what: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedOnDevice(f"{what} needs a GPU")

    return refuse


def _zero(*args: Any, **kwargs: Any) -> int:
    return 0


def _none(*args: Any, **kwargs: Any) -> None:
    """Nothing to do."""


def _seed(seed: int) -> None:
    torch.default_generator.manual_seed(seed)


def _apart(answer: Callable[..., Any]) -> Callable[..., Any]:
    """A function of its own: Dynamo indexes those of torch.cuda, and refuses to know one by two names."""

    def answering(*args: Any, **kwargs: Any) -> Any:
        return answer(*args, **kwargs)

    return answering


def install() -> None:
    """Emulate CUDA from now on, in this thread and every process forked from it."""
    cuda: Any = torch.cuda
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda *a, **k: emulated_gpu().compute_capability >= (8, 0),
        "is_current_stream_capturing": lambda: False,
        "device_count": lambda: 1,
        "current_device": _zero,
        "current_stream": lambda device=None: STREAM,
        "default_stream": lambda device=None: STREAM,
        "get_device_name": lambda device=None: emulated_gpu().full_name,
        "get_device_capability": lambda device=None: emulated_gpu().compute_capability,
        "get_device_properties": _properties,
        "mem_get_info": lambda device=None: (emulated_gpu().memory_bytes, emulated_gpu().memory_bytes),
        "Stream": Stream,
        "Event": Event,
        "stream": _nothing,
        "device": _nothing,
        "device_of": _nothing,
        "manual_seed": _seed,
        "manual_seed_all": _seed,
        "CUDAGraph": _unsupported("a CUDA graph"),
        "graph": _unsupported("a CUDA graph"),
        "make_graphed_callables": _unsupported("a CUDA graph"),
    }
    answers |= dict.fromkeys(SILENT, _none) | dict.fromkeys(EMPTY, _zero)
    for name, answer in answers.items():
        setattr(cuda, name, answer if isinstance(answer, type) else _apart(answer))
    _tensor.record_stream = _stays  # Its argument is checked before any mode sees the call.
    for name in ("range_push", "range_pop", "mark"):
        setattr(cuda.nvtx, name, _apart(_zero))
    cuda.nvtx.range = _nothing
    _install_generator()
    CudaEmulation().__enter__()


def _install_generator() -> None:
    """`torch.Generator(device="cuda")` draws on the host."""
    real: Any = torch.Generator

    class Generator(real):
        def __new__(cls, device: Any = "cpu") -> Any:
            return real.__new__(cls, device=_translated(device))

    replaced: Any = torch
    replaced.Generator = Generator
