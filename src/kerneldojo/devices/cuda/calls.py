"""Inside the contestant: the loop that the judge's stopwatch times.

It does as little as can be between the judge's signal and its answer: call, note where the outputs lie, wait for the
device. The reference runner runs the very same loop. Nothing it says is believed beyond what the judge can check; it
is written so that an honest candidate is charged for its own work only.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from kerneldojo.devices.cuda import page as pages
from kerneldojo.devices.cuda import stamps
from kerneldojo.devices.cuda.arena import CudaArena
from kerneldojo.devices.cuda.heap import Heap
from kerneldojo.devices.cuda.inputs import Layout

MOST_DEPTH = 16
"""Of nested outputs: as deep as they may be elsewhere (`contestant.tree.MAX_DEPTH`)."""
PATIENCE_SECONDS = 120.0
"""A contestant that waits longer for the next window gives up."""


class NotPlain(TypeError):
    """A result that is no plain tensor on this device, or not a tree of them."""


class CallLoop:
    """Answers the judge's windows.

    Args:
        arena: where outputs must lie.
        heap: the allocator, whose quarantine is emptied between windows.
        hush: makes no-ops of own kernels, or what they were, from the next launch on.
        strides: of each output of a call: the order in which the judge reads it. One that lies in another is copied.
    """

    def __init__(
        self, arena: CudaArena, heap: Heap, hush: Callable[[bool], None], strides: Sequence[tuple[int, ...]]
    ) -> None:
        self._page = arena.page
        self._arena = arena
        self._heap = heap
        self._hush = hush
        self._heap_start = arena.heap.address
        self._heap_end = arena.heap.address + arena.heap.size
        self._heap_base = arena.base(arena.heap)
        self._strides = strides
        self._plain: set[int] = set()
        """Outputs that have been in order and plain, which is quickly seen."""
        self._seen: dict[tuple[int, torch.Size, tuple[int, ...]], bool] = {}
        self._pulse = torch.zeros(1, device=arena.device)
        self._inputs = arena.inputs.bytes() if arena.inputs is not None else None
        self._last: tuple[tuple[int, int], torch.Tensor, torch.Tensor] | None = None
        """Where what came with the last signal belongs, and how much it was; that place, and the page's."""

    def rehearse(self) -> None:
        """Use the device as windows will: what the driver does at a first time is not to be waited for in one."""
        self._pulse.zero_()
        there = torch.empty(stamps.BLOCK_BYTES, dtype=torch.uint8, device=self._arena.device)
        there.copy_(torch.from_numpy(self._page.last(stamps.BLOCK_BYTES)))
        torch.cuda.synchronize()

    def serve(self, forward: Callable[..., Any], argument_sets: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
        """Run windows until the judge ends the series: call `i` of a window gets argument set `i`.

        The last argument set is for calls that nobody times, if the judge asks for such.

        Returns:
            the layout (`shape`, `stride`, `dtype`) of each tensor that a call returned last.

        Raises:
            whatever `forward` raises, after the judge was told.
        """
        self._last = None
        kept: list[Any] = []
        layouts: list[dict[str, Any]] = []
        is_imminent = False
        collecting = gc.isenabled()
        gc.disable()
        try:
            with torch.no_grad():
                while True:
                    length, flags = self._page.wait_go(PATIENCE_SECONDS, is_imminent=is_imminent)
                    is_imminent = bool(flags & (pages.WAKE | pages.PRIME))
                    if flags & pages.WAKE:
                        self._page.done(pages.OK, 0)
                        continue
                    if length:
                        kept = self._window(forward, argument_sets[:length], flags)
                        continue
                    if flags & pages.PRIME:
                        self._prime(forward, argument_sets[-1] if flags & pages.WARM else None)
                        continue
                    layouts = [_layout(tensor) for tensor in self._tensors(kept[-1])] if kept else layouts
                    kept = []
                    if not flags & pages.RELEASE:
                        return layouts
                    torch.cuda.synchronize()
                    self._heap.reclaim()
                    self._page.done(pages.OK, 0)
        finally:
            if collecting:
                gc.enable()

    def _prime(self, forward: Callable[..., Any], arguments: Sequence[Any] | None) -> None:
        """Bring the context in, and the code of a call into the core's caches."""
        self._pulse.zero_()
        try:
            if arguments is not None:
                forward(*arguments)
            torch.cuda.synchronize()
        except BaseException:
            self._page.done(pages.FAILED, 0)
            raise
        self._heap.reclaim()
        self._page.done(pages.OK, 0)

    def _take_last(self) -> None:
        """Write what came with the signal, wait, so that it hides the launching of no call, and say so."""
        at, length = where = self._page.last_place()
        if self._inputs is not None and length:
            if self._last is None or self._last[0] != where:
                self._last = where, self._inputs[at : at + length], torch.from_numpy(self._page.last(length))
            self._last[1].copy_(self._last[2])
            torch.cuda.synchronize()
        self._page.taken()

    def _window(self, forward: Callable[..., Any], argument_sets: Sequence[Sequence[Any]], flags: int) -> list[Any]:
        calls = self._calls
        if flags & pages.WITH_EVENTS:
            calls = self._calls_with_events
        elif flags & pages.PLACEBOS:
            calls = partial(self._calls_with_placebos, is_poisoned=bool(flags & pages.POISONED))
        kept: list[Any] = []
        try:
            count = calls(forward, argument_sets, kept)
        except BaseException as error:
            self._page.done(pages.NOT_PLAIN if isinstance(error, NotPlain) else pages.FAILED, 0)
            raise
        self._page.done(pages.OK, count)
        return kept

    def _calls(self, forward: Callable[..., Any], argument_sets: Sequence[Sequence[Any]], kept: list[Any]) -> int:
        """Make them, and keep what they return; how many outputs one has."""
        count = 0
        self._take_last()
        for index, arguments in enumerate(argument_sets):
            output = forward(*arguments)
            count = self._note(index, output, kept)
        torch.cuda.synchronize()
        return count

    def _calls_with_events(
        self, forward: Callable[..., Any], argument_sets: Sequence[Sequence[Any]], kept: list[Any]
    ) -> int:
        """The same, and tell what each takes on the device."""
        pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in argument_sets]
        count = 0
        self._take_last()
        for index, (arguments, (start, end)) in enumerate(zip(argument_sets, pairs, strict=True)):
            start.record()
            output = forward(*arguments)
            end.record()
            count = self._note(index, output, kept)
        torch.cuda.synchronize()
        for index, (start, end) in enumerate(pairs):
            self._page.put_span(index, int(start.elapsed_time(end) * 1e6))
        return count

    def _calls_with_placebos(
        self,
        forward: Callable[..., Any],
        argument_sets: Sequence[Sequence[Any]],
        kept: list[Any],
        *,
        is_poisoned: bool,
    ) -> int:
        """The same, own kernels silent in those that the judge named."""
        count = 0
        self._heap.poison(is_poisoned)
        try:
            self._take_last()
            for index, arguments in enumerate(argument_sets):
                self._hush(self._page.is_placebo(index))
                output = forward(*arguments)
                count = self._note(index, output, kept)
            torch.cuda.synchronize()
        finally:
            self._hush(False)
            self._heap.poison(False)
        return count

    def _note(self, index: int, output: Any, kept: list[Any]) -> int:
        """Tell the judge where the outputs of call `index` lie, and keep them; how many there are."""
        if type(output) is torch.Tensor:
            address = output.data_ptr()
            if self._heap_start <= address < self._heap_end and self._is_in_order(0, output):
                self._page.put_offset(index, self._heap_base + address - self._heap_start)
                kept.append(output)
                return 1
        placed = [self._placed(number, tensor) for number, tensor in enumerate(self._tensors(output))]
        if (index + 1) * len(placed) > pages.MAX_PLACES:
            raise NotPlain(f"{len(placed)} output tensors, more than it had before")
        for number, tensor in enumerate(placed):
            offset = self._heap_base + tensor.data_ptr() - self._heap_start
            self._page.put_offset(index * len(placed) + number, offset)
        kept.append(placed)
        return len(placed)

    def _placed(self, number: int, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor itself if it lies in the heap, and in the order in which the judge reads it; else a copy that
        does. Who hands over a transposed one where the reference has none, or a part of a larger one, pays for that.

        Raises:
            torch.OutOfMemoryError: there is no room for it. Where it lies then the judge cannot look, and would take it
                for a lie.
        """
        is_in_order = self._is_in_order(number, tensor)
        if is_in_order and self._is_inside(tensor):
            return tensor
        copy = tensor.clone() if is_in_order else self._in_order(number, tensor)
        if copy.numel() and not self._is_inside(copy):
            raise torch.OutOfMemoryError("CUDA out of memory: outputs of timed calls do not fit beside what is in use")
        return copy

    def _is_in_order(self, number: int, tensor: torch.Tensor) -> bool:
        """Whether the judge reads it in the order in which it lies; asked in windows."""
        is_plain = tensor.is_contiguous()
        if is_plain and number in self._plain:
            return True
        if number >= len(self._strides):  # Nobody expects it.
            return is_plain
        lies = number, tensor.shape, tensor.stride()
        found = self._seen.get(lies)
        if found is None:
            found = self._seen[lies] = Layout.of(tensor).lies_as(self._strides[number]) or not tensor.numel()
            if found and is_plain:
                self._plain.add(number)
        return found

    def _in_order(self, number: int, tensor: torch.Tensor) -> torch.Tensor:
        wanted = self._strides[number] if number < len(self._strides) else ()
        if len(wanted) != tensor.dim():
            return tensor.contiguous()
        return torch.empty_strided(tensor.shape, wanted, dtype=tensor.dtype, device=tensor.device).copy_(tensor)

    def _is_inside(self, tensor: torch.Tensor) -> bool:
        return self._heap_start <= tensor.data_ptr() < self._heap_end

    def _tensors(self, output: Any) -> list[torch.Tensor]:
        found: list[torch.Tensor] = []
        _collect(output, found, 0)
        return found


def _collect(value: Any, found: list[torch.Tensor], depth: int) -> None:
    """All tensors of a tree, depth first."""
    kind = type(value)
    if kind in (torch.Tensor, torch.nn.Parameter):
        if not value.is_cuda or value.layout != torch.strided:
            raise NotPlain("an output is not a dense tensor on the device")
        found.append(value)
    elif depth <= MOST_DEPTH and isinstance(value, list | tuple):
        for item in value:
            _collect(item, found, depth + 1)
    elif depth <= MOST_DEPTH and isinstance(value, dict):
        for item in value.values():
            _collect(item, found, depth + 1)
    elif value is not None and kind not in (bool, int, float, str):
        raise NotPlain("an output is neither a tensor nor a tree of tensors")


def _layout(tensor: torch.Tensor) -> dict[str, Any]:
    return {
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "dtype": str(tensor.dtype).removeprefix("torch."),
    }
