"""Building a candidate's C++/CUDA extension: `load_inline` as candidates know it, with our compilers' hands on it.

A `Builder` takes the place of `torch.utils.cpp_extension.load_inline` (and `load`) in a contestant. It builds the same
sources with the same meaning (`compiler`), but

- for one architecture and with uncompressed machine code, so that the candidate's own kernels are known by name and
  can be silenced (`cubin.py`);
- without a GPU too: there the sources are compiled, so that a compile error is real, and an honest candidate is told
  that it needs a CUDA device;
- somewhere else where it can: a workshop builds once for the contestant and its silent twin. What it does not take
  (options that are not plain, files of the candidate's own) is built here.

What the build yields is as untrusted as its source; it is loaded where the source was, in the contestant.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kerneldojo.devices.cuda import cubin
from kerneldojo.devices.cuda.compiler import Compiler, ExtensionError, Order, Unit, UnsupportedOnDevice, is_name
from kerneldojo.devices.cuda.flags import Flags, texts
from kerneldojo.devices.cuda.toolchain import Toolchain

__all__ = ["Builder", "ExtensionError", "UnsupportedOnDevice", "Workshop"]

Workshop = Callable[[Order], "bytes | None"]
"""Somebody who builds an order: the library, or None if it is not built there. Raises what `Compiler.build` does."""

_MATTERS = (
    *("PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "LD_LIBRARY_PATH", "GCC_EXEC_PREFIX"),
    *("COMPILER_PATH", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "LD_PRELOAD"),
)
"""Variables that compilers heed: what a candidate sets there holds for its own process only."""


class Builder:
    """Compiles extensions into `folder`.

    Args:
        toolchain: the machine's compilers.
        folder: writable, the contestant's own.
        silent: whether the candidate's kernels are turned into no-ops before a library is loaded.
        workshop: who builds what can be built elsewhere; None to build everything here.
    """

    def __init__(
        self, toolchain: Toolchain, folder: Path, *, silent: bool = False, workshop: Workshop | None = None
    ) -> None:
        self.libraries: list[Path] = []
        """What was built and loaded: the code objects that are the candidate's own."""
        self._compiler = Compiler(toolchain)
        self._folder = folder
        self.silent = silent
        self._workshop = workshop
        self._surroundings = _surroundings()

    def install(self) -> None:
        """Take the place of torch's functions in this process. Call it before candidate code is imported."""
        from torch.utils import cpp_extension

        extension: Any = cpp_extension
        extension.load_inline = self.load_inline
        extension.load = self.load

    def load_inline(
        self,
        name: str,
        cpp_sources: str | Sequence[str] = (),
        cuda_sources: str | Sequence[str] | None = None,
        *positional: Any,
        functions: str | Sequence[str] | Mapping[str, str] | None = None,
        no_implicit_headers: bool = False,
        with_pytorch_error_handling: bool = True,
        **options: Any,
    ) -> ModuleType | None:
        """Compile and import, with the arguments of `torch.utils.cpp_extension.load_inline`.

        Returns:
            the imported module, or None for `is_python_module=False`.

        Raises:
            ExtensionError: it does not compile.
            UnsupportedOnDevice: it compiles, but there is no GPU to run it.
        """
        if positional:
            # torch's third positional parameter after the sources differs between versions.
            functions = next((value for value in positional if value), functions)
        cpp = ['#line 1 "cpp_sources"', *texts(cpp_sources)]
        cuda = texts(cuda_sources)
        if not no_implicit_headers:
            cpp.insert(0, "#include <torch/extension.h>")
        if functions is not None:
            cpp += _bindings(functions, handled=with_pytorch_error_handling)
        files = {"main.cpp": "\n".join(cpp) + "\n"}
        if cuda:
            headers = [] if no_implicit_headers else ["torch/types.h", "cuda.h", "cuda_runtime.h"]
            lines = [*(f"#include <{header}>" for header in headers), '#line 1 "cuda_sources"', *cuda]
            files["cuda.cu"] = "\n".join(lines) + "\n"
        order = Order(name, files, Flags.of(options))
        folder = self._new_folder(name, order.digest)
        return self._loaded(name, folder, lambda: self._ordered(order, folder), options)

    def load(self, name: str, sources: str | Sequence[str], *_: Any, **options: Any) -> ModuleType | None:
        """Compile and import source files, with the arguments of `torch.utils.cpp_extension.load`."""
        paths = [Path(path) for path in texts(sources)]
        contents = [path.read_bytes().hex() if path.is_file() else "" for path in paths]
        digest = hashlib.sha256(repr((sources, contents, options)).encode("utf-8", "surrogatepass")).hexdigest()
        folder = self._new_folder(name, digest)
        units = [Unit(path, is_cuda=path.suffix in (".cu", ".cuh")) for path in paths]
        flags = Flags.of(options)
        return self._loaded(name, folder, lambda: self._compiler.build(name, units, flags, folder), options)

    def kernel_handles(self) -> set[int]:
        """The driver's handles of all kernels that loaded extensions registered. Needs a CUDA context."""
        return {handle for library in self.libraries for handle in _registered(library)}

    def _new_folder(self, name: str, digest: str) -> Path:
        """A folder of its own for each content. A `build_directory` of the candidate's choice is not used."""
        if not is_name(name):
            raise ExtensionError("the extension's name is not an identifier")
        folder = self._folder / f"{name}-{digest[:16]}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _loaded(
        self, name: str, folder: Path, build: Callable[[], Path], options: Mapping[str, Any]
    ) -> ModuleType | None:
        library = folder / f"{name}.so"
        if not library.exists():
            built = build()
            if self.silent:
                cubin.silence_library(built)
            built.replace(library)
        self.libraries.append(library)
        return _imported(name, library, is_python_module=options.get("is_python_module", True))

    def _ordered(self, order: Order, folder: Path) -> Path:
        """Have it built in the workshop, else build it here."""
        library = None
        if self._workshop is not None and order.is_plain and self._surroundings == _surroundings():
            library = self._workshop(order)
        if library is None:
            return order.build(self._compiler, folder)
        (folder / "linked.so").write_bytes(library)
        return folder / "linked.so"


def _surroundings() -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in _MATTERS}


def _registered(library: Path) -> set[int]:
    """Handles of the kernels of one extension, from the table that `registry.c` keeps."""
    loaded = ctypes.CDLL(str(library))
    try:
        count = ctypes.c_int.in_dll(loaded, "dojo_num_kernels").value
        stubs = (ctypes.c_void_p * max(0, min(count, 4096))).in_dll(loaded, "dojo_kernels")
    except ValueError:
        return set()  # It has no device code.
    handles: set[int] = set()
    for stub in stubs:
        for lookup in (loaded.cudaGetKernel, loaded.cudaGetFuncBySymbol):
            handle = ctypes.c_void_p()
            if lookup(ctypes.byref(handle), ctypes.c_void_p(stub)) == 0 and handle.value:
                handles.add(handle.value)
    loaded.cudaGetLastError()  # A failed look-up must not be found by the candidate's own error checks.
    return handles


def _imported(name: str, library: Path, *, is_python_module: bool) -> ModuleType | None:
    if not is_python_module:
        torch.ops.load_library(str(library))
        return None
    specification = importlib.util.spec_from_file_location(name, library)
    if specification is None or specification.loader is None:
        raise ExtensionError("the extension cannot be imported")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def _bindings(functions: str | Sequence[str] | Mapping[str, str], *, handled: bool) -> list[str]:
    """The pybind11 module that torch generates for the functions that are named."""
    if isinstance(functions, str):
        functions = [functions]
    described = functions if isinstance(functions, Mapping) else {function: function for function in functions}
    lines = ['#line 1 "bindings"', "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {"]
    for function, text in described.items():
        target = f"torch::wrap_pybind_function({function})" if handled else function
        lines.append(f"m.def({_quoted(function)}, {target}, {_quoted(text)});")
    return [*lines, "}"]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
