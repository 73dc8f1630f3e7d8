"""The compilers and flags with which a candidate's C++/CUDA extension is built on this machine."""

from __future__ import annotations

import inspect
import re
import shutil
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from kerneldojo.devices.cuda import headers

REGISTRY = Path(__file__).with_name("registry.c")
BINDINGS = headers.HEADERS / "bindings.cpp"

_NVCC_FLAGS = (
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
    "--expt-relaxed-constexpr",
)
"""What torch itself passes to nvcc for every extension."""

_OURS_TO_CHOOSE = re.compile(
    r"-gencode|--generate-code|-arch|--gpu-architecture|-code|--gpu-code|-cudart|--cudart|-compress-mode|--compress-mode"
    r"|-ccbin|--compiler-bindir"
)


@dataclass(frozen=True)
class Toolchain:
    """Where the compilers are and what they build for."""

    cxx: str
    """The host's C++ compiler."""
    nvcc: str | None
    """The CUDA compiler, or None if there is none."""
    cuda_home: Path | None
    """The toolkit that `nvcc` belongs to."""
    architecture: str
    """The one architecture that machine code is made for, for example `90a`."""
    can_link: bool
    """Whether torch here is a CUDA build, so that extensions can be linked and loaded."""

    def include_flags(self, extra: Iterable[str] = ()) -> list[str]:
        """Preprocessor flags for torch, Python and CUDA; the candidate's own folders first."""
        home = torch_home()
        folders = [home / "include", home / "include" / "torch" / "csrc" / "api" / "include"]
        if not (home / "include" / "c10" / "cuda" / "impl" / "cuda_cmake_macros.h").exists():
            folders.append(headers.HEADERS / "generated")
        folders.append(Path(sysconfig.get_paths()["include"]))
        flags = [f"-I{folder}" for folder in extra]
        if self.cuda_home is not None:
            flags.append(f"-I{self.cuda_home / 'include'}")
        return [*flags, *(part for folder in folders for part in ("-isystem", str(folder)))]

    def cxx_command(self, module: str, source: Path, target: Path, extra: Iterable[str]) -> list[str]:
        """Compile a C++ source to an object; optimised, like torch's own, only if `extra` says so."""
        # What binds is there anyway.
        wants = [flag for flag in headers.wants(headers.read(source)) if flag != headers.BINDS]
        return [self.cxx, *_common(module), *wants, *extra, "-c", str(source), "-o", str(target)]

    def nvcc_command(self, module: str, source: Path, target: Path, extra: Iterable[str]) -> list[str]:
        """Compile a CUDA source to an object with uncompressed machine code for one architecture and no PTX."""
        assert self.nvcc is not None
        code = f"arch=compute_{self.architecture},code=sm_{self.architecture}"
        flags = [*_NVCC_FLAGS, "-gencode", code, "--no-compress", "-cudart", "shared", "--compiler-options", "-fPIC"]
        common = [flag for flag in _common(module) if flag != "-fPIC"]
        return [
            self.nvcc,
            *common,
            *headers.wants(headers.read(source)),
            *flags,
            *without_architectures(extra),
            "-c",
            str(source),
            "-o",
            str(target),
        ]

    def brief_command(self, source: Path, target: Path) -> list[str]:
        """Compile what the brief headers only declare (`brief`): every function there is, for others to call."""
        kept = ["-O1", "-fno-inline", "-fvisibility=hidden"]
        return [self.cxx, *_common("dojo"), *self.include_flags(), *kept, "-c", str(source), "-o", str(target)]

    def bindings_command(self, target: Path) -> list[str]:
        """Compile what the bare headers only declare of pybind11."""
        kept = ["-O1", "-fvisibility=hidden"]
        return [self.cxx, *_common("dojo"), *self.include_flags(), *kept, "-c", str(BINDINGS), "-o", str(target)]

    def preprocess_command(self, source: Path, extra: Iterable[str]) -> list[str]:
        """Print what a compiler reads for a C++ or CUDA source, definitions of macros included."""
        if source.suffix != ".cu":
            return [self.cxx, *_common("dojo"), *extra, "-E", "-dD", str(source)]
        assert self.nvcc is not None
        return [self.nvcc, *_common("dojo")[:-2], *_NVCC_FLAGS, *extra, "-E", "-Xcompiler", "-dD", str(source)]

    def registry_command(self, target: Path) -> list[str]:
        """Compile the table of registered kernels."""
        return [self.cxx, "-x", "c", "-O2", "-fPIC", "-c", str(REGISTRY), "-o", str(target)]

    def link_command(self, objects: Iterable[Path], target: Path, *, cuda: bool, extra: Iterable[str]) -> list[str]:
        """Link objects into a Python extension."""
        library = torch_home() / "lib"
        command = [self.cxx, "-shared", *(str(item) for item in objects), f"-L{library}", f"-Wl,-rpath,{library}"]
        command += ["-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]
        if cuda and self.cuda_home is not None:
            folders = [self.cuda_home / "lib64", self.cuda_home / "lib64" / "stubs"]
            command += [*(f"-L{folder}" for folder in folders), "-lc10_cuda", "-ltorch_cuda", "-lcudart"]
            command += ["-Wl,--wrap=__cudaRegisterFunction"]
        return [*command, *without_architectures(extra), "-o", str(target)]


@cache
def find(capability: tuple[int, int] = (9, 0)) -> Toolchain:
    """The toolchain of this machine, building for devices of `capability`."""
    nvcc = shutil.which("nvcc") or _first(Path("/usr/local/cuda/bin/nvcc"))
    major, minor = capability
    # The suffix allows what only this architecture has (wgmma, tensor memory); the code runs nowhere else anyway.
    suffix = "a" if major >= 9 else ""
    return Toolchain(
        cxx=shutil.which("g++") or shutil.which("c++") or "g++",
        nvcc=nvcc,
        cuda_home=_cuda_home(nvcc),
        architecture=f"{major}{minor}{suffix}",
        can_link=torch.version.cuda is not None,
    )


def without_architectures(flags: Iterable[str]) -> list[str]:
    """`flags` without those that choose an architecture, a CUDA runtime or compression: these are the judge's."""
    kept: list[str] = []
    skip = False
    for flag in flags:
        if skip:
            skip = False
        elif match := _OURS_TO_CHOOSE.match(flag):
            skip = match.end() == len(flag)
        elif flag not in ("-lcudart_static", "-dlto", "--lto"):
            kept.append(flag)
    return kept


def _common(module: str) -> list[str]:
    defines = [f"-DTORCH_EXTENSION_NAME={module}", "-DTORCH_API_INCLUDE_EXTENSION_H"]
    return [*defines, f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}", _standard(), "-fPIC", "-w"]


@cache
def _standard() -> str:
    """The C++ standard that this version of torch builds extensions with."""
    from torch.utils import cpp_extension

    build: Any = cpp_extension
    found = re.search(r"-std=c\+\+\d+", inspect.getsource(build._write_ninja_file_to_build_library))
    return found.group() if found else "-std=c++17"


def torch_home() -> Path:
    """The folder of the torch that is installed."""
    return Path(torch.__file__).parent


def _cuda_home(nvcc: str | None) -> Path | None:
    if nvcc is None:
        return None
    home = Path(nvcc).resolve().parent.parent
    return next((path for path in (home, Path("/usr/local/cuda")) if (path / "include/cuda_runtime.h").exists()), None)


def _first(*paths: Path) -> str | None:
    return next((str(path) for path in paths if path.exists()), None)
