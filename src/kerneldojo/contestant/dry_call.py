"""A call without a device and without a number: does what the candidate launches compile?

Triton compiles a kernel when it is launched, so that whether a source compiles shows only in a call, which wants a
context, memory and a reference. Of what policies write more than half fails there and then (of 200 answers of two
models, 119). But the front end, which is what nearly always complains, wants only a kernel's text and the types of its
arguments. So the problem's inputs are drawn, the module is constructed and called with tensors that have shapes and no
content (torch's fake tensors), under an emulated GPU; a launch has its kernel read by the front end, and that is all.

An error of the front end's that leaves `forward` here would leave it on a device: it depends on the kernel, on types
and on compile-time constants, which come from shapes and settings. Nothing else that goes wrong says anything: a call
may need numbers, the device itself, or a feature that fake tensors lack. Then, and where all is well, the device tells.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import nn

from kerneldojo.contestant.runner import split_init_inputs

MOST_CONFIGURATIONS = 8
"""Of autotuned kernels, as many are read in all: most complaints are about what every configuration has in common."""


def refused_kernel(module: ModuleType, problem: str, entry_point: str, gpu_name: str) -> Exception | None:
    """Construct and call a module of the loaded source; this process is of no use for anything else after that.

    Args:
        module: the candidate's, imported.
        problem: the source of the reference, with `get_inputs` and `get_init_inputs`.
        entry_point: the candidate's class.
        gpu_name: the GPU that is emulated, as `devices.specs` names it.

    Returns:
        What Triton's front end says of a kernel that was launched, in both modes; None if it says nothing, or if the
        call came to nothing for another reason.
    """
    import triton

    from kerneldojo.devices import interpreter
    from kerneldojo.devices.specs import gpu

    knobs: Any = triton.knobs  # pyright: ignore[reportAttributeAccessIssue]
    if knobs.runtime.interpret or not triton.__version__.startswith(interpreter.TRITON_VERSION):
        return None
    interpreter.pose()
    interpreter.use_gpu(gpu(gpu_name))
    _replace_launches()
    _tell_device(str(module.__file__))
    refusals = [_refusal(module, problem, entry_point, training=True)]
    if refusals[0] is not None:  # What runs in training only may never be asked for.
        refusals.append(_refusal(module, problem, entry_point, training=False))
    return None if None in refusals else refusals[0]


def warm_up() -> None:
    """Have what a first call with fake tensors imports and fills imported and filled, in who forks."""
    import_module("kerneldojo.devices.interpreter.driver")  # Imported, and not installed.
    import_module("kerneldojo.devices.interpreter.emulation")
    with _unasked(), _fakes(), torch.no_grad():
        block = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 8))
        torch.softmax(block(torch.rand(2, 3, 8, 8)), dim=-1).sum()
    gc.collect()


@contextmanager
def _unasked() -> Generator[None]:
    """Fake tensors ask whether there is a device, which initialises the driver; who forks must not."""
    cuda: Any = torch.cuda
    asked = cuda.is_available
    cuda.is_available = lambda: True
    try:
        yield
    finally:
        cuda.is_available = asked


def _refusal(module: ModuleType, problem: str, entry_point: str, *, training: bool) -> Exception | None:
    from triton.compiler.errors import CompilationError

    try:
        with _fakes(), torch.no_grad():
            reference: dict[str, Any] = {"__name__": "reference"}
            exec(compile(problem, "reference", "exec", dont_inherit=True), reference)
            positional, named = split_init_inputs(reference["get_init_inputs"]())
            inputs = reference["get_inputs"]()
            instance = getattr(module, entry_point)(*positional, **named).train(training)
            instance(*inputs)
    except CompilationError as error:
        return error
    except Exception:
        return None  # Whatever it is: it happened in a world without numbers.
    return None


def _fakes() -> Any:
    """Within it tensors have shapes alone; those that a source has made when it was imported may be among them."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


def _tell_device(file: str) -> None:
    """Have fake tensors say to that file that they are on the device: they do not ask the emulation, as others do."""
    from torch._subclasses.fake_tensor import FakeTensor

    from kerneldojo.devices.interpreter.emulation import CUDA

    fake: Any = FakeTensor
    truth = fake.device.fget

    def device(tensor: Any) -> torch.device:
        return CUDA if sys._getframe(1).f_code.co_filename == file else truth(tensor)  # pyright: ignore[reportPrivateUsage]

    fake.device = property(device)


def _read(kernel: Any, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> Any:
    """Of a launch everything up to the front end, with the types of tensors in place of tensors."""
    from kerneldojo.devices.interpreter.driver import LAUNCH

    kernel.compile = _front_end
    typed = {name: _typed(value) for name, value in kwargs.items()}
    return LAUNCH(kernel, *map(_typed, args), grid=grid, warmup=True, **typed)


def _typed(value: Any) -> Any:
    from triton.runtime.jit import MockTensor

    if isinstance(value, torch.Tensor):
        return MockTensor(value.dtype, list(value.shape))
    return tuple(map(_typed, value)) if type(value) is tuple else value


def _front_end(source: Any, target: Any = None, options: Any = None, **_: Any) -> Any:
    """The first stage of `triton.compile`, from Python to Triton's own representation."""
    from triton.compiler import compiler

    stages: Any = compiler
    backend = stages.make_backend(target)
    chosen = backend.parse_options({**(options or {}), **source.parse_options()})
    context = stages.ir.context()
    stages.ir.load_dialects(context)
    backend.load_dialects(context)
    source.make_ir(target, chosen, backend.get_codegen_implementation(chosen), backend.get_module_map(), context)
    return SimpleNamespace(hash="", metadata=SimpleNamespace(shared=0))


def _replace_launches() -> None:
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    launched: Any = JITFunction
    launched.run = _read
    compiler: Any = import_module("triton.compiler")
    compiler.compile = _front_end  # Whose kernels were never launched look there.
    tuned: Any = Autotuner
    times = _benchmark(iter(range(MOST_CONFIGURATIONS)))
    tuned.do_bench = property(lambda _: times)


def _benchmark(left: Iterator[int]) -> Callable[..., list[float]]:
    """Times of nothing; a configuration is launched once, as long as there are any `left` to look at."""

    def times(launch: Callable[[], Any], *_: Any, **__: Any) -> list[float]:
        if next(left, None) is not None:
            launch()
        return [1.0, 1.0, 1.0]

    return times
