"""The GPU as hosted code sees it: what the contestant's runner needs of a device, on CUDA."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kerneldojo.devices.cuda import first_look, profiler, toolchain, warm
from kerneldojo.devices.cuda.arena import CudaArena
from kerneldojo.devices.cuda.build import Builder, Workshop
from kerneldojo.devices.cuda.calls import CallLoop
from kerneldojo.devices.cuda.page import Page
from kerneldojo.devices.cuda.presence import Presence
from kerneldojo.devices.cuda.silence import OwnKernels
from kerneldojo.devices.cuda.tf32 import tf32_allowed

MAX_PROFILED_CALLS = 50


@dataclass
class CallRecord:
    """What was seen during one call. Claims."""

    work: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The candidate's own Triton kernels and extensions loaded so far in this process: `name`, `own`."""
    specializations: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Kernels are compiled for this very device as they run; only what they lacked, `launcher`: a signature's types."""
    outputs: Any = None
    """What the call returned; of no interest here."""


class CudaPlatform:
    """One contestant's device. Made once a process, before candidate code is imported.

    Args:
        device: `cuda:N`. Where CUDA_VISIBLE_DEVICES is set, the one visible device is meant.
        decode: the contestant's way to read described arguments: `contestant.tree.decode`.
        workshop: see `Builder`.
    """

    def __init__(
        self,
        device: str,
        decode: Callable[[Any, Any], Any],
        workshop: Workshop | None = None,
    ) -> None:
        self._decode = decode
        index = 0 if os.environ.get("CUDA_VISIBLE_DEVICES") else int(device.partition(":")[2] or 0)
        self.device = torch.device("cuda", index)
        self._presence = Presence(index)
        self.own = OwnKernels()
        self.own.install()
        folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR", Path.cwd() / "extensions"))
        tools = toolchain.find(warm.capability())
        self.builder = Builder(tools, folder, workshop=workshop)
        self.builder.install()
        self._profiler: profiler.Profiler | None = None
        self._loop: CallLoop | None = None
        self._sets: list[list[Any]] = []
        """Of timed calls: one a call of a window."""
        self._inputs: list[tuple[int, int]] = []
        self._placed: list[torch.Tensor] = []
        """Results that the judge reads where they lie."""
        self._first_look = first_look.FirstLook()
        self._later: list[tuple[first_look.Glimpse, torch.Tensor]] = []
        """What was found in them at first: written there once the device is done."""
        torch.cuda._lazy_call(self._presence.map)  # pyright: ignore[reportPrivateUsage] - as torch's own modules do

    # What `kerneldojo.contestant.platform.Platform` asks for

    @property
    def used_bytes(self) -> int:
        """What the heap saw."""
        return self._presence.heap.statistics()["peak_bytes"]

    def furnish(self, fds: list[int]) -> None:
        """Take the memory of `Presence.take`; with a context, map it.

        Raises:
            RuntimeError: it cannot be mapped.
        """
        self._heed(self._presence.take(fds))
        if torch.cuda.is_initialized():
            self.open()

    def _heed(self, page: Page) -> None:
        self.own.silent = self.builder.silent = page.silent

    def load_driver(self) -> None:
        """See `Presence.load_driver`."""
        self._presence.load_driver()

    def open(self, *, is_lean: bool = False) -> None:
        """See `Presence.open`."""
        self._presence.open(is_lean=is_lean)

    @property
    def arena(self) -> CudaArena:
        """Memory shared with the judge; opens the device."""
        return self._presence.arena

    def renew(self) -> None:
        """See `Platform.renew`."""
        self._placed.clear()
        self._later.clear()  # Of a call that failed: what lies there may be somebody else's by now.
        self._first_look.forget()

    def settle(self) -> bool:
        """See `Platform.settle`."""
        self._inputs.clear()
        self._sets.clear()
        self._loop = None
        return self._presence.leave()

    def input_view(self, slot: Any) -> torch.Tensor:
        """A view of shared memory; its address range is remembered as an input's."""
        view = self.arena.view(slot)
        storage_bytes = sum((size - 1) * step for size, step in zip(view.shape, view.stride(), strict=True))
        end = view.data_ptr() + (storage_bytes + 1) * view.element_size() if view.numel() else view.data_ptr()
        self._inputs.append((view.data_ptr(), end))
        return view

    def look(self, outputs: Any) -> None:
        """See `Platform.look`."""
        if self._presence.is_mapped:
            self._first_look.take(outputs)

    def place(self, tensor: torch.Tensor, packer: Any) -> Any:
        """Copy an output to the exchange, strides kept if they are dense; or name it where it lies in the heap.

        Raises:
            torch.OutOfMemoryError: there is no room for it: what is shared is the device's memory.
        """
        tensor = tensor if first_look.has_no_holes(tensor) else self._first_look.without_holes(tensor)
        found = self._first_look.of(tensor)
        may_stay = packer.in_place and tensor.device == self.device and tensor.numel()
        if may_stay:
            offset = self.arena.offset_in_heap(tensor.data_ptr(), tensor.numel() * tensor.element_size())
            if offset is not None:
                self._placed.append(tensor)
                if found is not None:
                    self._later.append((found, tensor))
                return packer.name(offset, tensor)
        try:
            slot = packer.put(tensor)
        except MemoryError as error:
            # Whatever may stay lies elsewhere for want of heap: more room for what is packed would not help it.
            reason = "a result does not fit beside what else is there" if may_stay else error
            raise torch.OutOfMemoryError(f"CUDA out of memory: {reason}") from None
        if found is not None:
            first_look.stand_in(found, self.arena.view(slot))
        return slot

    def is_ours(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is on this device."""
        return tensor.device == self.device

    def is_input(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor begins within an input."""
        return any(start <= tensor.data_ptr() < end for start, end in self._inputs)

    def loading(self) -> AbstractContextManager[Any]:
        """Whose process it is may be known only now: one that was opened ahead was nobody's."""
        if self._presence.page is not None:
            self._heed(self._presence.page)
        return nullcontext()

    def constructing(self) -> AbstractContextManager[Any]:
        """New tensors are made on the device, so that both sides draw from the same generator."""
        return self.device

    def adopt(self, instance: nn.Module) -> nn.Module:
        """Move to the device what was made elsewhere."""
        return instance.to(self.device)

    @contextmanager
    def called(self, instance: nn.Module, arguments: Any, *, silenced: bool) -> Generator[CallRecord]:
        """One call with poisoned memory: what it does not write is NaN.

        Raises:
            RuntimeError: `silenced` is asked of a contestant that can not be.
        """
        if silenced and not (self.own.silent or self.own.is_armed):
            raise RuntimeError("a contestant on CUDA is silent from birth, or is armed before it is silenced")
        record = CallRecord()
        self._presence.heap.poison(True)
        self.own.hush(silenced)
        try:
            yield record
        finally:
            self.own.hush(False)
            self._presence.heap.poison(False)
        names = {*self.own.functions.values(), *(library.stem for library in self.builder.libraries)}
        record.work = [{"name": name, "own": True} for name in sorted(names)]
        record.specializations = [{"launcher": list(types)} for types in warm.launchers().lacked()]

    def arm(self) -> bool:
        """See `Platform.arm`: not with an extension, whose kernels are loaded with it."""
        if self.builder.libraries:
            return False
        self.own.arm(warm.launchers())
        return True

    def tf32(self) -> AbstractContextManager[Any]:
        """Products with truncated operands, as `tl.dot` computes them; cuBLAS, which rounds, is closer to the truth."""
        from kerneldojo.problems.precision import tf32_emulation

        return tf32_emulation()

    def synchronize(self) -> None:
        """Wait until the device has done everything, on all streams; without a context there is nothing."""
        if self._presence.is_mapped:
            torch.cuda.synchronize(self.device)
            if self._later:
                while self._later:
                    first_look.stand_in(*self._later.pop())
                torch.cuda.synchronize(self.device)
            self._presence.heap.reclaim()

    # Operations of its own: `{"op": "platform", "what": ...}`

    def do_ready(self, command: dict[str, Any], *_: Any) -> dict[str, Any]:
        """Be ready for windows, which others wait for. `sets`: argument trees, one a call of a window; `strides`: in
        which order each output of a call is read."""
        self._sets = self._decoded(command["sets"])
        strides = [tuple(map(int, one)) for one in command["strides"]]
        self._loop = CallLoop(self.arena, self._presence.heap, self.own.hush, strides)
        self._loop.rehearse()
        return {}

    def do_windows(self, command: dict[str, Any], _: Any, instances: dict[str, nn.Module]) -> dict[str, Any]:
        """Serve the judge's stopwatch, after `do_ready`, until it ends the series."""
        if self._loop is None:
            raise RuntimeError("windows need a process that is ready for them")
        with tf32_allowed() if command.get("tf32") else nullcontext():
            return {"layouts": self._loop.serve(instances[command["instance"]], self._sets)}

    def do_baseline(self, command: dict[str, Any], _: Any, instances: dict[str, nn.Module]) -> dict[str, Any]:
        """Make `torch.compile`'s version of an instance under the name `baseline`, and warm it up on the first set."""
        from torch._inductor import config

        config.compile_threads = 1  # Worker processes would outlive their use in a sandbox.
        compiled: Any = torch.compile(instances[command["instance"]])
        (arguments,) = self._decoded(command["sets"][:1])
        with torch.no_grad(), tf32_allowed() if command.get("tf32") else nullcontext():
            for _ in range(3):
                compiled(*arguments)
        instances["baseline"] = compiled
        return {}

    def do_profile(self, command: dict[str, Any], _: Any, instances: dict[str, nn.Module]) -> dict[str, Any]:
        """Profile a call of each of `sets` after one that is not; `kernels` as `profiler.summary`, None if unknown.

        `even` says whether no launch was interrupted by another process.
        """
        try:
            self._profiler = self._profiler or profiler.Profiler(self.own, self.builder)
        except ImportError:
            return {"kernels": None, "reason": "cupti-python is not installed"}
        instance = instances[command["instance"]]
        sets = self._decoded(command["sets"])[:MAX_PROFILED_CALLS]

        def calls() -> None:
            for arguments in sets:
                instance(*arguments)

        with torch.no_grad():
            instance(*sets[0])
            records = self._profiler.profile(calls)
        even = profiler.is_even(records, len(sets))
        return {"kernels": profiler.summary(records, len(sets))[:512], "even": even}

    def do_extend(self, command: dict[str, Any], *_: Any) -> dict[str, Any]:
        """Map timed inputs and a larger heap, whose descriptors came beside the command; `sizes` in bytes.

        `has_overflowed` says whether calls have needed more than the former heap: then they have a larger part of this.
        """
        self.synchronize()
        return {"has_overflowed": self._presence.extend(command["descriptors"], command["sizes"])}

    def do_memory(self, *_: Any) -> dict[str, Any]:
        """Statistics of the heap."""
        return {"heap": self._presence.heap.statistics()}

    def _decoded(self, nodes: list[Any]) -> list[list[Any]]:
        return [list(self._decode(node, self.arena.view)) for node in nodes]
