"""Building a candidate's C++/CUDA extension: `load_inline` as candidates know it, with our compilers' hands on it.

A `Builder` takes the place of `torch.utils.cpp_extension.load_inline` (and `load`) in a contestant. It compiles the
same sources with the same meaning, but

- for one architecture and with uncompressed machine code, so that the candidate's own kernels are known by name and
  can be silenced (`cubin.py`);
- against slim headers first: torch's umbrella headers are what an extension's build time goes to (16 s of nvcc and
  12 s of g++ become 8 s and 4 s). What does not compile that way is compiled against torch's own headers, and only
  their verdict counts;
- without a GPU too: there the sources are compiled, so that a compile error is real, and an honest candidate is told
  that it needs a CUDA device.

What the build yields is as untrusted as its source; it is loaded where the source was, in the contestant.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kerneldojo.devices.cuda import cubin
from kerneldojo.devices.cuda.toolchain import SLIM_HEADERS, Toolchain

MAX_LOG = 2000
"""Longest excerpt of a compiler's output that is passed on."""

_TOOLKIT_HEADER = re.compile(r"fatal error: (?:cu[a-z_0-9]*|nccl|cudnn\w*|c10/cuda/[\w/]+|ATen/cuda/[\w/]+)\.h(?:pp)?:")
_USEFUL = re.compile(r"error|undefined reference|multiple definition|ptxas fatal|cannot find -l", re.IGNORECASE)


class ExtensionError(RuntimeError):
    """The candidate's extension does not compile or link; the message is the compilers' own, shortened."""


class UnsupportedOnDevice(RuntimeError):
    """The extension compiles, but this machine cannot load it (or cannot even compile it): no verdict on it here."""


@dataclass(frozen=True)
class Unit:
    """One source file of an extension."""

    path: Path
    is_cuda: bool

    def object_path(self, folder: Path) -> Path:
        """Where its object goes."""
        return folder / f"{self.path.name}.o"


class Builder:
    """Compiles extensions into `folder`.

    Args:
        toolchain: the machine's compilers.
        folder: writable, the contestant's own.
        silent: whether the candidate's kernels are turned into no-ops before a library is loaded.
    """

    def __init__(self, toolchain: Toolchain, folder: Path, *, silent: bool = False) -> None:
        self.libraries: list[Path] = []
        """What was built and loaded: the code objects that are the candidate's own."""
        self._toolchain = toolchain
        self._folder = folder
        self._silent = silent

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
        cpp = ['#line 1 "cpp_sources"', *_texts(cpp_sources)]
        cuda = _texts(cuda_sources)
        if not no_implicit_headers:
            cpp.insert(0, "#include <torch/extension.h>")
        if functions is not None:
            cpp += _bindings(functions, handled=with_pytorch_error_handling)
        texts = {"main.cpp": "\n".join(cpp) + "\n"}
        if cuda:
            headers = [] if no_implicit_headers else ["torch/types.h", "cuda.h", "cuda_runtime.h"]
            lines = [*(f"#include <{header}>" for header in headers), '#line 1 "cuda_sources"', *cuda]
            texts["cuda.cu"] = "\n".join(lines) + "\n"
        folder = self._new_folder(name, options.get("build_directory"), repr((texts, sorted(options.items(), key=str))))
        units: list[Unit] = []
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="utf-8", errors="surrogatepass")
            units.append(Unit(folder / file, is_cuda=file.endswith(".cu")))
        return self._build(name, units, folder, options)

    def load(self, name: str, sources: str | Sequence[str], *_: Any, **options: Any) -> ModuleType | None:
        """Compile and import source files, with the arguments of `torch.utils.cpp_extension.load`."""
        paths = [Path(path) for path in _texts(sources)]
        contents = [path.read_bytes().hex() if path.is_file() else "" for path in paths]
        folder = self._new_folder(name, options.get("build_directory"), repr((sources, contents, options)))
        units = [Unit(path, is_cuda=path.suffix in (".cu", ".cuh")) for path in paths]
        return self._build(name, units, folder, options)

    def kernel_handles(self) -> set[int]:
        """The driver's handles of all kernels that loaded extensions registered. Needs a CUDA context."""
        return {handle for library in self.libraries for handle in _registered(library)}

    def _new_folder(self, name: str, _: Any, content: str) -> Path:
        """A folder of its own for each content. A `build_directory` of the candidate's choice is not used."""
        if not name.isidentifier() or len(name) > 100:
            raise ExtensionError("the extension's name is not an identifier")
        digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        folder = self._folder / f"{name}-{digest}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _build(self, name: str, units: list[Unit], folder: Path, options: Mapping[str, Any]) -> ModuleType | None:
        library = folder / f"{name}.so"
        has_cuda = any(unit.is_cuda for unit in units)
        if not library.exists():
            self._check_possible(has_cuda)
            self._compile(name, units, folder, options)
            if has_cuda and not self._toolchain.can_link:
                raise UnsupportedOnDevice("the CUDA extension compiles; running it needs a CUDA device")
            objects = [unit.object_path(folder) for unit in units]
            if has_cuda:
                self._run({"registry": self._toolchain.registry_command(folder / "registry.o")}, folder)
                objects.append(folder / "registry.o")
            extra = _texts(options.get("extra_ldflags"))
            cuda = has_cuda or bool(options.get("with_cuda"))
            self._run({"link": self._toolchain.link_command(objects, library, cuda=cuda, extra=extra)}, folder)
            if self._silent:
                cubin.silence_library(library)
        self.libraries.append(library)
        return _imported(name, library, is_python_module=options.get("is_python_module", True))

    def _check_possible(self, has_cuda: bool) -> None:
        if has_cuda and (self._toolchain.nvcc is None or self._toolchain.cuda_home is None):
            raise UnsupportedOnDevice("building a CUDA extension needs nvcc, which is not on this machine")

    def _compile(self, name: str, units: list[Unit], folder: Path, options: Mapping[str, Any]) -> None:
        """Compile all units at once, against slim headers first; those that fail again, against torch's."""
        failed = set(self._attempt(name, units, folder, options, slim=True))
        remaining = [unit for unit in units if unit.path.name in failed]
        if remaining:
            logs = self._attempt(name, remaining, folder, options, slim=False)
            if logs:
                raise _error("\n".join(logs.values()), folder)

    def _attempt(
        self, name: str, units: list[Unit], folder: Path, options: Mapping[str, Any], *, slim: bool
    ) -> dict[str, str]:
        """Compile `units` in parallel; the logs of those that failed, by file name."""
        commands: dict[str, list[str]] = {}
        for unit in units:
            includes = self._toolchain.include_flags(_texts(options.get("extra_include_paths")))
            includes = [f"-I{SLIM_HEADERS}", *includes] if slim else includes
            if unit.is_cuda:
                extra, command = _texts(options.get("extra_cuda_cflags")), self._toolchain.nvcc_command
            else:
                extra, command = _texts(options.get("extra_cflags")), self._toolchain.cxx_command
            commands[unit.path.name] = command(name, unit.path, unit.object_path(folder), [*includes, *extra])
        return _run_all(commands, folder)

    def _run(self, commands: dict[str, list[str]], folder: Path) -> None:
        logs = _run_all(commands, folder)
        if logs:
            raise _error("\n".join(logs.values()), folder)


def _run_all(commands: dict[str, list[str]], folder: Path) -> dict[str, str]:
    """Run commands at once; what the failed ones printed."""
    running: dict[str, tuple[subprocess.Popen[bytes], Path]] = {}
    for key, command in commands.items():
        log = folder / f"{key}.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                command, stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=folder
            )
        running[key] = (process, log)
    codes = {key: process.wait() for key, (process, _) in running.items()}
    return {key: running[key][1].read_text("utf-8", "replace")[: 1 << 20] for key, code in codes.items() if code}


def _error(log: str, folder: Path) -> Exception:
    """What a failed build means: usually the candidate's mistake, but not where the toolkit itself has holes."""
    if _TOOLKIT_HEADER.search(log) and not torch.version.cuda:
        return UnsupportedOnDevice(
            "the CUDA extension needs toolkit headers that this machine lacks: use a CUDA device"
        )
    lines = [line for line in log.replace(f"{folder}/", "").splitlines() if line.strip()]
    useful = [line for line in lines if _USEFUL.search(line)] or lines
    return ExtensionError(_shortened("\n".join(useful)))


def _shortened(text: str) -> str:
    """The first errors are what helps; paths of this machine are not the candidate's business."""
    text = re.sub(r"(?:/[\w.+-]+)+/(?=[\w.+-]+)", "", text)
    return text if len(text) <= MAX_LOG else text[:MAX_LOG] + "..."


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


def _texts(value: Any) -> list[str]:
    if value is None:
        return []
    return [str(value)] if isinstance(value, str | Path) else [str(item) for item in value]
