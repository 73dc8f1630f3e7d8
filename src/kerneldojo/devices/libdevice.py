"""NVIDIA's library of functions for the compiler, cut down to the few that kernels call.

Triton links `libdevice` into every kernel that calls a sine or a square root, and for that it parses the whole library
anew: 25 ms, a quarter of what such a kernel takes to compile. `keep_common_part` does it once: a kernel that calls the
common functions is compiled, and what was linked into it is kept as text. From then on a kernel that calls no other
functions of the library is linked against that, in 2 ms.

What is kept is LLVM's own print of the very functions. To be sure of it the same kernel is compiled again against the
part alone, and unless the binary is the same, bit for bit, everything stays as it was.
"""

# pyright: basic, reportOperatorIssue=false
from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.language.extra import libdevice

LINES = re.compile(r"^(?:@(?!global_smem)|%[^ ]+ = type |declare |attributes )")
"""What is kept beside functions: constants, types, declarations and attributes; not what is the kernel's alone."""
METADATA = re.compile(r"^![0-9]+ = ")
NUMBERED = re.compile(r"![0-9]+")
CALLED = "__nv_"
"""How names of the library's functions begin."""


@triton.jit
def _caller(x_ptr, y_ptr):
    offsets = tl.arange(0, 128)
    x = tl.load(x_ptr + offsets)
    y = tl.sin(x) + tl.cos(x) + tl.log(x) + tl.log2(x) + tl.sqrt(x) + tl.rsqrt(x) + tl.erf(x)
    y += tl.floor(x) + tl.ceil(x) + tl.exp(x) + tl.exp2(x)
    y += libdevice.tanh(x) + libdevice.log1p(x) + libdevice.expm1(x) + libdevice.pow(x, x) + libdevice.exp(x)
    tl.store(y_ptr + offsets, y)


def keep_common_part(capability: Sequence[int]) -> tuple[str, ...]:
    """Have kernels of this process, and of those forked from it, linked against the common part where that is enough.

    Args:
        capability: compute capability for which the part is tried.

    Returns:
        Names of the functions in it; none where it could not be cut out, or did not give the same binary.
    """
    from triton._C.libtriton import llvm

    bound: Any = llvm
    link = bound.link_extern_libs
    linker = _Linker(link)
    try:
        bound.link_extern_libs = linker.listening
        whole = _binary(capability)
        bound.link_extern_libs = linker
        part = _binary(capability) if linker.names else b""
    except BaseException:
        bound.link_extern_libs = link
        raise
    finally:
        was_used = linker.forget_file()
    if part != whole or not was_used:
        bound.link_extern_libs = link
        return ()
    return tuple(sorted(linker.names))


class _Linker:
    """Takes the place of Triton's own function that links libraries into a module."""

    def __init__(self, link: Any) -> None:
        self._link = link
        self._text = b""
        self._path = ""
        self.names: frozenset[str] = frozenset()
        """Functions in the part."""

    def listening(self, module: Any, paths: Sequence[str]) -> None:
        """Link everything, and keep what has come in."""
        names = _missing(module)
        self._link(module, paths)
        self._text = library(str(module), names)
        self.names = names

    def __call__(self, module: Any, paths: Sequence[str]) -> None:
        """Link the part where it holds all that is missing, else everything."""
        if len(paths) != 1 or not _missing(module) <= self.names:
            self._link(module, paths)
            return
        if not self._path:  # A forked process writes its own: it may see none of its parent's files.
            handle, self._path = tempfile.mkstemp(suffix=".ll", dir=os.environ.get("TMPDIR"))
            with os.fdopen(handle, "wb") as file:
                file.write(self._text)
        self._link(module, [self._path])

    def forget_file(self) -> bool:
        """Remove this process's file; whether there was one, so that the part was used."""
        path, self._path = self._path, ""
        if path:
            Path(path).unlink()
        return bool(path)


def _missing(module: Any) -> frozenset[str]:
    """Functions of the library that a module calls and does not have."""
    names = (function.name for function in module.get_functions() if function.is_declaration())
    return frozenset(name for name in names if name.startswith(CALLED))


def library(module: str, names: frozenset[str]) -> bytes:
    """The functions that linking has added to a module, with what they need, as a module of their own.

    Args:
        module: LLVM's text of the module.
        names: those to be called from outside; linking has made them internal.
    """
    kept: list[str] = []
    within = False
    for line in module.splitlines():
        if line.startswith("define internal "):
            within = True
            name = line.partition("@")[2].partition("(")[0]
            line = line.replace("define internal ", "define ", 1) if name in names else line
        if within or LINES.match(line):
            kept.append(line)
        within = within and line != "}"
    described = dict(line.split(" = ", 1) for line in module.splitlines() if METADATA.match(line))
    wanted = list(dict.fromkeys(NUMBERED.findall("\n".join(kept))))
    for name in wanted:  # It grows: what is described by others needs them, too.
        wanted += [other for other in NUMBERED.findall(described[name]) if other not in wanted]
    return "\n".join([*kept, *(f"{name} = {described[name]}" for name in wanted), ""]).encode()


def _binary(capability: Sequence[int]) -> bytes:
    """The kernel that calls everything, compiled, from no cache."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    before = os.environ.get("TRITON_CACHE_DIR")
    with tempfile.TemporaryDirectory(prefix="dojo-") as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        try:
            source = ASTSource(_caller, {"x_ptr": "*fp32", "y_ptr": "*fp32"}, {}, {})
            kernel: Any = triton.compile(source, target=GPUTarget("cuda", capability[0] * 10 + capability[1], 32))
            return kernel.asm["cubin"]
        finally:
            if before is None:
                del os.environ["TRITON_CACHE_DIR"]
            else:
                os.environ["TRITON_CACHE_DIR"] = before
