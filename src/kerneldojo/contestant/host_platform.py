"""Platforms without a GPU: `interpret` runs kernels under Triton's interpreter and emulates CUDA on the CPU; `compile`
only loads a source and compiles its kernels for a target.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from kerneldojo.contestant import tree, weights
from kerneldojo.contestant.arena import HostArena, Packer, Slot

if TYPE_CHECKING:
    from kerneldojo.contestant.workshop import Line


@dataclass
class Record:
    """What was seen during one call. Claims, all of it."""

    work: list[dict[str, Any]] = field(default_factory=list)
    """Kernels and library operations with their bytes and FLOPs, as `devices.interpreter.Work`."""
    specializations: list[dict[str, Any]] = field(default_factory=list)
    """Signatures under which own kernels were launched, for compiling them for a target."""
    outputs: Any = None
    """See `Seen`."""


class HostPlatform:
    """What the flavours without a GPU share: host memory, and CUDA emulated upon it."""

    capability = (9, 0)
    """Compute capability of the GPU that extensions are compiled for."""

    arena: HostArena
    """There while the platform is furnished."""

    def __init__(self, arena_fds: list[int]) -> None:
        if arena_fds:
            self.furnish(arena_fds)
        self.workshop: Line | None = None
        """Who builds extensions once for two, in verdicts that have one."""
        self._inputs: list[tuple[int, int]] = []

    @property
    def used_bytes(self) -> int:
        """Host memory is each process' own, and counted elsewhere."""
        return 0

    def furnish(self, fds: list[int]) -> None:
        """Map the arena."""
        self.arena = HostArena.open(fds[0])

    def load_driver(self) -> None:
        """There is none."""

    def open(self, *, is_lean: bool = False) -> None:
        """It is there."""

    def renew(self) -> None:
        """What was placed is a copy."""

    def settle(self) -> bool:
        """No memory of inputs that are gone."""
        self._inputs.clear()
        if hasattr(self, "arena"):
            self.arena.close()
            del self.arena
        return True

    def input_view(self, slot: Slot) -> torch.Tensor:
        """A view of the arena."""
        view = self.arena.view(slot)
        storage = view.untyped_storage()
        # All views share the arena's one storage: what tells an input is its address range.
        start = view.data_ptr()
        self._inputs.append((start, start + view.numel() * view.element_size() if view.numel() else start))
        del storage
        return view

    def look(self, outputs: Any) -> None:
        """What a call returns is there when it returns."""

    def place(self, tensor: torch.Tensor, packer: Packer) -> Slot:
        """Copy into the arena; only strides without holes or overlap are kept."""
        return packer.put(tensor if _can_keep_strides(tensor) else tensor.contiguous())

    def is_ours(self, tensor: torch.Tensor) -> bool:
        """Everything in host memory is."""
        return not tensor.is_meta

    def is_input(self, tensor: torch.Tensor) -> bool:
        """Compare addresses with those of the inputs."""
        address = tensor.data_ptr()
        return any(start <= address < stop for start, stop in self._inputs)

    @contextmanager
    def loading(self) -> Generator[None]:
        """CUDA extensions are compiled here too, where there is an nvcc, and then told that they need a device."""
        from kerneldojo.devices.cuda import toolchain
        from kerneldojo.devices.cuda.build import Builder

        folder = Path(os.environ["TORCH_EXTENSIONS_DIR"])
        Builder(toolchain.find(self.capability), folder, workshop=self.workshop).install()
        yield

    def constructing(self) -> AbstractContextManager[Any]:
        """Nothing special."""
        return nullcontext()

    def adopt(self, instance: nn.Module) -> nn.Module:
        """Already here."""
        return instance

    @contextmanager
    def called(self, instance: nn.Module, arguments: Any, *, silenced: bool) -> Generator[Record]:
        """Nothing is counted."""
        yield Record()

    def arm(self) -> bool:
        """It always is: a call that is to be silenced is told so (`called`)."""
        return True

    def tf32(self) -> AbstractContextManager[Any]:
        """Cut the operands of products as TF32 hardware does."""
        from kerneldojo.problems.precision import tf32_emulation

        return tf32_emulation()

    def synchronize(self) -> None:
        """Everything is synchronous."""


class InterpretPlatform(HostPlatform):
    """Kernels run under Triton's interpreter, and every launch and library operation is counted.

    Args:
        arena_fds: the arena's descriptor.
        gpu_name: the GPU that hosted code believes to run on, as `devices.specs` names it.
    """

    def __init__(self, arena_fds: list[int], gpu_name: str) -> None:
        from kerneldojo.devices import interpreter
        from kerneldojo.devices.specs import gpu

        super().__init__(arena_fds)
        interpreter.use_gpu(gpu(gpu_name))
        self.capability = gpu(gpu_name).compute_capability
        self._ledger = interpreter.Ledger()

    @contextmanager
    def called(self, instance: nn.Module, arguments: Any, *, silenced: bool) -> Generator[Record]:
        """Count the work of a call, or turn the candidate's own kernels into no-ops."""
        from kerneldojo.devices import interpreter

        record = Record()
        if silenced:
            with interpreter.silenced(), interpreter.Unwritten():
                yield record
            return
        # Before anything of the candidate's runs: inputs are here, and what it did now would not be counted.
        self._ledger.open([*tree.tensors(arguments), *weights.held(instance)])
        meter = interpreter.Meter(self._ledger)
        try:
            with meter:
                yield record
            told = tree.tensors(record.outputs)[: tree.MAX_LEAVES]  # With more than these it is refused anyway.
            meter.returned([*told, *weights.held(instance, "_buffers")])
        finally:
            # Also of a call that failed: what it tried to launch may be what does not compile.
            # Thousands of them, in a call that loops over time steps: what is not said is what is not so.
            record.work = [work.model_dump(exclude_defaults=True) for work in meter.works]
            record.specializations = [item.model_dump() for item in meter.specializations]


class CompilePlatform(HostPlatform):
    """Nothing runs; kernels are compiled for a target GPU that need not be there.

    Args:
        arena_fds: the arena's descriptor.
        gpu_name: the GPU that a source finds when it is imported, as `devices.specs` names it.
    """

    def __init__(self, arena_fds: list[int], gpu_name: str) -> None:
        from kerneldojo.devices import interpreter
        from kerneldojo.devices.specs import gpu

        super().__init__(arena_fds)
        interpreter.use_gpu(gpu(gpu_name))
        self.capability = gpu(gpu_name).compute_capability

    def do_compile(self, command: dict[str, Any], module: Any, instances: dict[str, nn.Module]) -> dict[str, Any]:
        """Compile the kernels of `module` under the given signatures."""
        from kerneldojo.devices import target

        compiled = target.compile_module(module, command["specializations"], command["capability"])
        return {"compiled": [item.model_dump() for item in compiled]}


def _can_keep_strides(tensor: torch.Tensor) -> bool:
    from kerneldojo.contestant.arena import extent

    count = tensor.numel()
    return 0 not in tensor.stride() and count <= extent(tensor.shape, tensor.stride()) <= 2 * max(1, count)
