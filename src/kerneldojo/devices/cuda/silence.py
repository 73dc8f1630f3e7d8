"""Which Triton kernels are the candidate's own, and how they are kept from doing anything.

Triton loads every kernel through one method, `CompiledKernel._init_handles`. We look in there: the function handle
that the driver returned is the kernel's exact identity for the profiler, and in a silent contestant the machine code
that goes in has lost its first instruction (`cubin.silenced`). A *silent twin* is silent from birth: kernels that it
captured into a graph, tuned or kept a launcher of are silent like any other. For C++/CUDA extensions `build.Builder`
does the same to the library before it is loaded.

Who runs already can be *armed*: what it has loaded, and will load, is loaded once more, as no-ops, and then launched in
the place of what it is whenever it is hushed (`substitutes`), call by call. That costs no second context, and tells
less: a graph keeps what was captured. So an answer that is wrong when it is hushed shows that it depends on own
kernels, as in a twin; one that is right shows nothing, and a twin is asked.

Kernels that `torch.compile` generates are the library's, not the candidate's. To be seen as foreign or to escape the
silencing gains a candidate nothing: what is not silent is not its own, and an answer that survives the silence
convicts.
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kerneldojo.devices.cuda import cubin
from kerneldojo.devices.cuda.launchers import Launchers


@dataclass
class OwnKernels:
    """The candidate's Triton kernels as they are loaded in this process."""

    silent: bool = False
    """Whether they are loaded as no-ops."""
    functions: dict[int, str] = field(default_factory=dict[int, str])
    """Names by the driver's function handle."""
    is_hushed: bool = False
    """Whether they are no-ops until they are told otherwise."""
    _launchers: Launchers | None = None
    """What launches them, once they are armed."""
    _loaded: list[Any] = field(default_factory=list[Any])
    """Compiled kernels of Triton's that have a handle, and no substitute yet."""
    _substitutes: list[Any] = field(default_factory=list[Any])
    """What is launched in their place, kept as long as they are."""
    _visible: list[tuple[Any, Any, Any]] = field(default_factory=list[tuple[Any, Any, Any]])
    """Kernels that no launcher can substitute: their handle changes, from the one to the other, which can be seen."""
    _load: Callable[[Any], None] = field(default=lambda _: None)
    """Triton's own way to load one."""

    def install(self) -> None:
        """Start to watch what Triton loads. Call it before candidate code is imported."""
        from triton.compiler.compiler import CompiledKernel

        kernel_class: Any = CompiledKernel
        load = self._load = kernel_class._init_handles

        def _init_handles(kernel: Any) -> None:
            if kernel.module is not None:
                return
            own = is_own(kernel.src)
            if own and self.silent:
                kernel.kernel = cubin.silenced(kernel.kernel)
            load(kernel)
            if own and kernel.function is not None:
                self.functions[int(kernel.function)] = kernel.name
                self._loaded.append(kernel)
                if self._launchers is not None:
                    self._substitute(self._launchers)

        kernel_class._init_handles = _init_handles

    @property
    def is_armed(self) -> bool:
        """Whether they can be hushed."""
        return self._launchers is not None

    def arm(self, launchers: Launchers) -> None:
        """Have a no-op ready for those that are loaded, and for all that will be; nothing is silent yet.

        Raises:
            CubinError: machine code that nobody can read; and what Triton or the driver raises.
        """
        self._launchers = launchers
        self._substitute(launchers)

    def hush(self, is_hushed: bool) -> None:
        """Make no-ops of own kernels, or what they were, from the next launch on; who is not armed stays as it is."""
        if is_hushed == self.is_hushed or self._launchers is None:
            return
        self.is_hushed = is_hushed
        self._launchers.hush(is_hushed)
        for kernel, own, silent in self._visible:
            kernel.function = silent if is_hushed else own

    def _substitute(self, launchers: Launchers) -> None:
        while self._loaded:
            kernel = self._loaded.pop()
            silent = copy.copy(kernel)
            silent.kernel, silent.module = cubin.silenced(kernel.kernel), None
            self._load(silent)
            self._substitutes.append(silent)
            if not launchers.substitute(int(kernel.function), int(silent.function)):
                self._visible.append((kernel, kernel.function, silent.function))
                if self.is_hushed:
                    kernel.function = silent.function


def is_own(source: Any) -> bool:
    """Whether a kernel's Triton source was written by the candidate rather than generated or shipped by a library."""
    function = getattr(source, "fn", None)
    if function is None:
        return True  # From IR or a file: a library would not do that on the candidate's behalf.
    code = getattr(getattr(function, "fn", None), "__code__", None)
    file = Path(code.co_filename) if code is not None else Path("candidate.py")
    return not any(file.is_relative_to(folder) for folder in _library_folders())


def _library_folders() -> list[Path]:
    import torch
    import triton

    generated = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    folders = [Path(str(torch.__file__)).parent, Path(str(triton.__file__)).parent]
    folders += [Path(generated)] if generated else []
    return [*folders, *Path(tempfile.gettempdir()).glob("torchinductor_*")]
