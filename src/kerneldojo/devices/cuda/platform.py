"""The GPU as hosted code sees it: what the contestant's runner needs of a device, on CUDA."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kerneldojo.devices.cuda import profiler, toolchain, warm
from kerneldojo.devices.cuda.arena import CudaArena
from kerneldojo.devices.cuda.build import Builder, Workshop
from kerneldojo.devices.cuda.calls import CallLoop
from kerneldojo.devices.cuda.driver import bindings, call, enter_context
from kerneldojo.devices.cuda.page import WANTS_DEVICE, Page
from kerneldojo.devices.cuda.silence import OwnKernels
from kerneldojo.devices.cuda.tf32 import tf32_allowed

MAX_PROFILED_CALLS = 50
LEAN_STACK_BYTES = 256
"""A thread's stack in a lean context, where the driver's default is 1024: it holds that for as many threads as run at
once, so that a lean context has 198 MiB more to spare on an H100. A kernel whose need is known when it is compiled gets
it by itself at its first launch; what calls itself, or by pointer, does not."""


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

    A context takes a fifth of a second and a GPU makes only some 260 a minute, so there is none before something needs
    it: `open`, or hosted code that uses CUDA as it is imported, for torch then calls us as it initialises itself.
    Memory comes with `furnish`, before or after the context, and always before hosted code; a process that never gets
    any only tries whether a source imports, and ends once that needs the device (`WANTS_DEVICE`).

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
        self._index = 0 if os.environ.get("CUDA_VISIBLE_DEVICES") else int(device.partition(":")[2] or 0)
        self.device = torch.device("cuda", self._index)
        self._heap = warm.heap()
        self._fds: list[int] = []
        self._page: Page | None = None
        self._arena: CudaArena | None = None
        self._fault: BaseException | None = None
        self._is_opening = False
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
        torch.cuda._lazy_call(self._map)  # pyright: ignore[reportPrivateUsage] - as torch's own modules do

    def furnish(self, fds: list[int]) -> None:
        """Take page, exchange, heap and, for timing, inputs, as `CudaArena.fds` lists them; with a context, map them.

        Raises:
            RuntimeError: they cannot be mapped.
        """
        self._fds = list(fds)
        self._page = Page.open(fds[0])
        self.own.silent = self.builder.silent = self._page.silent
        if torch.cuda.is_initialized():
            self.open()

    def _map(self) -> None:
        """Map the shared memory into the context that torch has just made; never raises, for torch would tell where."""
        if self._page is None:
            if not self._is_opening:
                os._exit(WANTS_DEVICE)
            return
        if self._arena is not None or self._fault is not None:
            return
        try:
            enter_context(self._index)
            arena = CudaArena.open(self._fds, self._index, self._page)
            self._heap.open(arena.heap)
            self._arena = arena
        except BaseException as fault:
            self._fault = fault

    def load_driver(self) -> None:
        """`cuInit`: half of the time until a context is there, which, unlike the other half, passes beside others'.

        Not through the bindings: a fork in which they are the first to call the driver ends in torch's initialisation
        (signal 11; torch 2.11, CUDA 13).

        Raises:
            RuntimeError: the driver refuses.
        """
        if status := ctypes.CDLL("libcuda.so.1").cuInit(0):
            raise RuntimeError(f"cuInit failed: error {status}")

    def open(self, *, is_lean: bool = False) -> None:
        """Make the context, if there is none yet, and map the shared memory into it, if that has come.

        Args:
            is_lean: whether it has `LEAN_STACK_BYTES`.

        Raises:
            RuntimeError: the driver refuses (`CudaError`), or torch does.
        """
        self._is_opening = True
        try:
            enter_context(self._index)
            if is_lean:
                call("cuCtxSetLimit", bindings().CUlimit.CU_LIMIT_STACK_SIZE, LEAN_STACK_BYTES)
            self._map()
            if self._page is None:  # It is opened ahead, when the driver has time for what will be asked later.
                warm.ask_properties(self._index)
        finally:
            self._is_opening = False
        if self._fault is not None:
            raise self._fault

    @property
    def arena(self) -> CudaArena:
        """Memory shared with the judge; opens the device."""
        if self._arena is None:
            self.open()
        assert self._arena is not None
        return self._arena

    def renew(self) -> None:
        """See `Platform.renew`."""
        self._placed.clear()

    def settle(self) -> bool:
        """Give back what libraries keep of torch's memory, begin the heap anew, and unmap the shared memory."""
        if self._arena is None:
            return True
        torch._C._cuda_clearCublasWorkspaces()  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        torch.backends.cuda.cufft_plan_cache.clear()
        torch.clear_autocast_cache()
        self._inputs.clear()
        self._sets.clear()
        self._loop = None
        gc.collect()
        torch.cuda.synchronize(self.device)
        self._heap.settle()
        if not self._heap.leave():
            return False
        self._arena.close()
        self._arena = self._page = None
        while self._fds:
            fd = self._fds.pop()
            if self._fds:  # The first one was the page's, and went with it.
                os.close(fd)
        return True

    # What `kerneldojo.contestant.platform.Platform` asks for

    def input_view(self, slot: Any) -> torch.Tensor:
        """A view of shared memory; its address range is remembered as an input's."""
        view = self.arena.view(slot)
        storage_bytes = sum((size - 1) * step for size, step in zip(view.shape, view.stride(), strict=True))
        end = view.data_ptr() + (storage_bytes + 1) * view.element_size() if view.numel() else view.data_ptr()
        self._inputs.append((view.data_ptr(), end))
        return view

    def place(self, tensor: torch.Tensor, packer: Any) -> Any:
        """Copy an output to the exchange, strides kept if they are dense; or name it where it lies in the heap.

        Raises:
            torch.OutOfMemoryError: there is no room for it: what is shared is the device's memory.
        """
        dense = torch.ops.aten.is_non_overlapping_and_dense(tensor)
        tensor = tensor if dense else tensor.contiguous()
        if packer.in_place and tensor.device == self.device and tensor.numel():
            offset = self.arena.offset_in_heap(tensor.data_ptr(), tensor.numel() * tensor.element_size())
            if offset is not None:
                self._placed.append(tensor)
                return packer.name(offset, tensor)
        try:
            return packer.put(tensor)
        except MemoryError as error:
            raise torch.OutOfMemoryError(f"CUDA out of memory: {error}") from None

    def is_ours(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is on this device."""
        return tensor.device == self.device

    def is_input(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor begins within an input."""
        return any(start <= tensor.data_ptr() < end for start, end in self._inputs)

    def loading(self) -> AbstractContextManager[Any]:
        """Whose process it is may be known only now: one that was opened ahead was nobody's."""
        if self._page is not None:
            self.own.silent = self.builder.silent = self._page.silent
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
        self._heap.poison(True)
        self.own.hush(silenced)
        try:
            yield record
        finally:
            self.own.hush(False)
            self._heap.poison(False)
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
        if self._arena is not None:
            torch.cuda.synchronize(self.device)
            self._heap.reclaim()

    # Operations of its own: `{"op": "platform", "what": ...}`

    def do_ready(self, command: dict[str, Any], *_: Any) -> dict[str, Any]:
        """Be ready for windows, which others wait for. `sets`: argument trees, one a call of a window."""
        self._sets = self._decoded(command["sets"])
        self._loop = CallLoop(self.arena, self._heap, self.own.hush)
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
        has_overflowed = self._heap.statistics()["fallback_count"] > 0
        self.arena.adopt(command["descriptors"], command["sizes"])
        self._fds += command["descriptors"]
        self._heap.move(self.arena.heap)
        return {"has_overflowed": has_overflowed}

    def do_memory(self, *_: Any) -> dict[str, Any]:
        """Statistics of the heap."""
        return {"heap": self._heap.statistics()}

    def _decoded(self, nodes: list[Any]) -> list[list[Any]]:
        return [list(self._decode(node, self.arena.view)) for node in nodes]
