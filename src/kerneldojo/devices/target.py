"""Compiling a candidate's kernels for a GPU that need not be there.

Runs in a process *without* `TRITON_INTERPRET`. What to compile comes from the interpreting process as checked data
(`Specialization`): nothing of it is evaluated, functions are found by module, name and line in the source that this
process imported itself. Triton brings its own `ptxas`, so errors, registers and shared memory are those of a GPU.

A kernel that asks for more shared memory than a block can have is an error here, as it is at launch on a GPU.
"""

from __future__ import annotations

import gc
import hashlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

from kerneldojo.devices.cubin import resources
from kerneldojo.devices.specs import GPUS
from kerneldojo.devices.work import Argument, Compiled, Configuration, Constant, KernelName, Specialization

FUNCTIONS_OF = ("kerneldojo.",)
"""Modules whose kernels are never a candidate's."""
MAX_ERROR = 1500

Specializations = Iterable[Specialization | Mapping[str, Any]]


def warm_up() -> None:
    """Compile one kernel for one target, so that forked processes find the compiler initialised.

    Raises:
        RuntimeError: this process interprets.
    """
    import triton

    from kerneldojo.devices import libdevice, target_sample

    knobs: Any = triton.knobs  # pyright: ignore[reportAttributeAccessIssue]
    if knobs.runtime.interpret:
        raise RuntimeError("a process that interprets Triton kernels cannot compile them")
    _name_triton_by_its_version()
    compiled = compile_kernels(kernels_of(target_sample), [target_sample.SPECIALIZATION], target_sample.CAPABILITY)
    if compiled[0].error:
        raise RuntimeError(f"the Triton compiler does not work here: {compiled[0].error}")
    libdevice.keep_common_part(target_sample.CAPABILITY)


def _name_triton_by_its_version() -> None:
    """Spare the half second in which Triton hashes its own 400 MB, to tell what it has kept from another Triton's.

    What is compiled here is kept for one contestant at most, which has one Triton.
    """
    import triton
    from triton.runtime import cache

    kept: Any = cache
    kept.triton_key = lambda: triton.__version__


def compile_module(module: ModuleType, specializations: Specializations, capability: Sequence[int]) -> list[Compiled]:
    """Compile kernels of a module that this process imported; see `compile_kernels`."""
    return compile_kernels(kernels_of(module), specializations, capability)


def kernels_of(module: ModuleType) -> dict[KernelName, Any]:
    """Every `@triton.jit` function of a module and of the modules it imported kernels from.

    Found by object, not by attribute: decorated, wrapped and aliased kernels are all there.
    """
    from triton.runtime.jit import JITFunction

    found: dict[KernelName, Any] = {}
    for function in [item for item in gc.get_objects() if type(item) is JITFunction]:
        name = KernelName(
            module=str(function.fn.__module__)[:200],
            qualname=function.fn.__qualname__[:200],
            line=function.fn.__code__.co_firstlineno,
        )
        own = function.fn.__globals__ is module.__dict__
        if own or not name.module.startswith(FUNCTIONS_OF):
            if own:  # Imported under another name in the other process, perhaps.
                name = name.model_copy(update={"module": module.__name__})
            found[name] = function
    return found


def compile_kernels(
    functions: Mapping[KernelName, Any], specializations: Specializations, capability: Sequence[int]
) -> list[Compiled]:
    """Compile each specialization; of an autotuned kernel the chosen configuration, else the first that can be built.

    Args:
        functions: as from `kernels_of`.
        specializations: as recorded by a `Meter`, or their JSON form, which is validated.
        capability: compute capability of the target, for example `(9, 0)`.

    Raises:
        ValueError: what came is not a specialization.
    """
    checked = [Specialization.model_validate(item) for item in specializations]
    return [_compile(functions, item, (int(capability[0]), int(capability[1]))) for item in checked]


def _compile(functions: Mapping[KernelName, Any], item: Specialization, capability: tuple[int, int]) -> Compiled:
    name = item.kernel.qualname
    function = functions.get(item.kernel)
    if function is None:
        return Compiled(specialization=item.key, kernel=name, is_found=False)
    failures: list[str] = []
    for configuration in (Configuration(), *item.alternatives):
        try:
            return _build(functions, function, item, configuration, capability, len(failures))
        except _Refused as refused:
            failures.append(str(refused))
    return Compiled(specialization=item.key, kernel=name, error=failures[0][:MAX_ERROR], num_failed=len(failures))


class _Refused(Exception):
    """The compiler, or a limit of the device, says no."""


def _build(
    functions: Mapping[KernelName, Any],
    function: Any,
    item: Specialization,
    configuration: Configuration,
    capability: tuple[int, int],
    num_failed: int,
) -> Compiled:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    name = item.kernel.qualname
    options = {k: v for k, v in {**item.options, **configuration.options}.items() if v is not None}
    knobs: Any = triton.knobs  # pyright: ignore[reportAttributeAccessIssue]
    knobs.compilation.store_binary_only = True  # Else each stage on the way there is printed, and written to a file.
    try:
        signature, constants, attributes = _inputs(functions, item, configuration)
        source = ASTSource(function, signature, constants, attributes)
        # Whatever the compiler prints (MLIR diagnostics) is not for our output.
        with _quiet():
            kernel: Any = triton.compile(
                source, target=GPUTarget("cuda", capability[0] * 10 + capability[1], 32), options=options
            )
    except Exception as error:
        raise _Refused(_explain(name, function, error)) from None
    shared = int(kernel.metadata.shared)
    limit = shared_limit(capability)
    if shared > limit:
        raise _Refused(
            f"{name} (line {item.kernel.line}): out of resource: shared memory, required {shared} bytes, "
            f"a block can have {limit}; smaller blocks or fewer stages may help"
        )
    cubin: bytes = kernel.asm["cubin"]
    used = resources(cubin)
    return Compiled(
        specialization=item.key,
        kernel=name,
        registers=used.registers,
        spilled_bytes=used.stack_bytes,
        shared_bytes=shared,
        num_warps=int(kernel.metadata.num_warps),
        cubin_sha256=hashlib.sha256(cubin).hexdigest(),
        num_failed=num_failed,
    )


def shared_limit(capability: tuple[int, int]) -> int:
    """Most shared memory of a block on GPUs of this capability, in bytes; 48 KiB where no spec is known."""
    limits = [gpu.shared_bytes_per_block for gpu in GPUS.values() if gpu.compute_capability == capability]
    return min(limits, default=48 << 10)


def _inputs(
    functions: Mapping[KernelName, Any], item: Specialization, configuration: Configuration
) -> tuple[dict[str, Any], dict[Any, Any], dict[Any, Any]]:
    """Triton's signature, constants by path, and attributes by path."""
    signature: dict[str, Any] = {}
    constants: dict[Any, Any] = {}
    attributes: dict[Any, Any] = {}

    def read(argument: Argument, path: tuple[int, ...]) -> Any:
        if argument.type == "tuple":
            return tuple(read(part, (*path, i)) for i, part in enumerate(argument.items))
        replaced = configuration.constants.get(argument.name)
        if replaced is not None or argument.constant is not None:
            constants[path] = _value(functions, replaced or argument.constant)
            return "constexpr"
        if argument.aligned:
            attributes[path] = [["tt.divisibility", 16]]
        return argument.type

    for i, argument in enumerate(item.arguments):
        signature[argument.name] = read(argument, (i,))
    return signature, constants, attributes


def _value(functions: Mapping[KernelName, Any], constant: Constant | None) -> Any:
    """The value of a tagged constant; raises `ValueError` for a malformed one."""
    import triton.language as tl

    if constant is None:
        return None
    text = constant.text
    match constant.kind:
        case "none":
            return None
        case "bool":
            return text == "true"
        case "int":
            return int(text)
        case "float":
            return float.fromhex(text)
        case "str":
            return text
        case "dtype":
            return tl.dtype(text)
        case "tuple":
            return tuple(_value(functions, part) for part in constant.items)
        case "function":
            module, qualname, line = text.rsplit(":", 2)
            name = KernelName(module=module, qualname=qualname, line=int(line))
            if name not in functions:
                raise ValueError(f"the function {qualname}, a compile-time argument, was not found")
            return functions[name]


def _explain(name: str, function: Any, error: Exception) -> str:
    """One message: where in the candidate's source, which line, and what the compiler says of it."""
    from triton.compiler.errors import CompilationError

    inner = error
    while isinstance(inner.__cause__, CompilationError):
        inner = inner.__cause__
    first: int = function.fn.__code__.co_firstlineno
    text = str(error).strip()
    if isinstance(inner, CompilationError):
        text = str(inner.error_message or inner.__cause__ or "").strip() or type(inner).__name__
        number = getattr(getattr(inner, "node", None), "lineno", None)
        source: str = inner.src or ""
        lines = source.splitlines()
        if number is not None and number <= len(lines):
            where = first + number - 1 + _decorators(function) if source == function.src else None
            place = f"line {where}: " if where else ""
            return f"{name}: {text} ({place}{lines[number - 1].strip()})"
    return f"{name} (line {first}): {type(error).__name__}: {text}"


def _decorators(function: Any) -> int:
    """Lines between a kernel's first decorator and its `def`, which Triton's own source leaves out."""
    import inspect

    lines, _ = inspect.getsourcelines(function.fn)
    return next((i for i, line in enumerate(lines) if line.lstrip().startswith("def ")), 0)


class _quiet:
    """Send file descriptors 1 and 2 to nowhere meanwhile."""

    def __enter__(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self._saved = [os.dup(1), os.dup(2)]
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os.close(nowhere)

    def __exit__(self, *exception: object) -> None:
        for number, saved in zip((1, 2), self._saved, strict=True):
            os.dup2(saved, number)
            os.close(saved)
