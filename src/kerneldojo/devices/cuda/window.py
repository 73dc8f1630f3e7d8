"""The judge's stopwatch: how long a contestant takes for a window of calls, and what came out of it.

The clock starts when the inputs are in place and the caches are cold, and it stops when the judge itself has read a
secret sample of the outputs of all calls. So work that was left for later, put on another stream or thread, or never
done is either paid for or found missing; and what was sampled is what is compared, for it is the judge's own copy.
Reading the sample costs the same whatever the length of the window, so it does not enter the slope.

A contestant naps while others are timed and is woken first, so that nothing competes with a window for its core.

A GPU runs one process' context at a time, and bringing another one in takes 150 us. If that fell into the window, it
would hide the launching of the first calls (measured on an H200: a launch-bound call of 13 us came out at 9), so the
contestant's context is brought in first, by a launch of ours that takes a known time. A call that nobody times goes
with it: the first launch of a process that has slept takes 25 us longer than the next, and 100 us where the host is
busy, as if one call alone cost several. The inputs are there meanwhile, but for a part of the first call's, which comes
with the signal (`stamps`); and how long it takes is looked at and charged (`charges`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from kerneldojo.devices.cuda import page as pages
from kerneldojo.devices.cuda.arena import CudaArena
from kerneldojo.devices.cuda.fits import Window
from kerneldojo.devices.cuda.inputs import Layout
from kerneldojo.devices.cuda.interpreter import alone_with_the_interpreter
from kerneldojo.devices.cuda.sampling import BLOCK_BYTES, NUM_BLOCKS, Integers, Plan, Sample
from kerneldojo.devices.cuda.stamps import Stamp

END_SECONDS = 0.2
"""How long a side whose series is to end may still take over what it was told last."""


@dataclass(frozen=True)
class Timed:
    """One window as the judge saw it."""

    length: int
    wall_us: float
    """From when the contestant said that its calls begin until the sample of its outputs had been read."""
    done_us: float
    """From then until it said that they were done: below `wall_us` by the sampling."""
    prepare_us: float
    """How long the judge's own flushing took before: more than usual means that somebody else used the device."""
    prime_us: float
    """How long it took to bring the contestant's context in: unusual figures mean the same."""
    state: int
    """`page.OK` or how the contestant says that it failed."""
    in_bounds: bool
    """Whether all outputs lay in the contestant's heap."""
    disjoint: bool
    """Whether no two calls' outputs shared memory: the result of each call must survive the others."""
    sample: Sample | None
    offsets: Integers
    """(length, outputs a call): where outputs lay, within bounds only if `in_bounds`."""
    spans_us: tuple[float, ...] = ()
    """The contestant's own time of each call; a claim."""
    taken_us: float = 0.0
    """From the signal until the contestant said that its calls begin, for it had written what came with the signal."""
    stopped: float = 0.0
    """When the clock stopped, on that of `time.perf_counter`."""

    def window(self, turn: int, *, is_warmed: bool, is_undisturbed: bool = True) -> Window:
        """It as a line is read off; `turn` is the round it was in."""
        return Window(
            self.length,
            self.wall_us,
            is_undisturbed,
            self.done_us,
            self.prime_us,
            turn,
            is_warmed,
            self.taken_us,
            self.prepare_us,
        )


@dataclass
class Side:
    """One of the processes that are timed: a contestant, its silent twin, the reference runner."""

    name: str
    arena: CudaArena
    layouts: tuple[Layout, ...]
    """Its outputs: how each lies, as found in the rounds."""
    check: Callable[[], None]
    """Raises if its process is gone; called while the judge waits."""
    is_decisive: bool = True
    """Whether windows go on until this side's figure is sharp."""
    is_trusted: bool = False
    """Whether its windows tell what a window costs around its calls: the reference runner's do."""
    every: int = 1
    """It has a window in every so many rounds."""
    kept: frozenset[int] = frozenset()
    """Outputs that may lie in one place in all calls: the reference returns what its module keeps."""

    @cached_property
    def places(self) -> tuple[Integers, Integers]:
        """Of each output, where one that lies in its heap may begin at the latest, and the bytes of an element."""
        end = self.arena.base(self.arena.heap) + self.arena.heap.size
        last = [end - layout.num_bytes for layout in self.layouts]
        items = [layout.dtype.itemsize for layout in self.layouts]
        return np.array(last, dtype=np.int64), np.array(items, dtype=np.int64)

    @cached_property
    def lengths(self) -> list[int]:
        """Bytes of each output that must be each call's own."""
        return [0 if number in self.kept else layout.num_bytes for number, layout in enumerate(self.layouts)]

    @cached_property
    def blocks(self) -> torch.Tensor:
        """Its heap as overlapping blocks, one starting at every byte."""
        heap = self.arena.heap
        return heap.tensor(0, (heap.size - BLOCK_BYTES + 1, BLOCK_BYTES), (1, 1), torch.uint8)

    def told(self, length: int) -> Integers:
        """Where it says that the outputs of each call of a window lie, unchecked: (length, outputs a call).

        What is empty lies nowhere, and is taken to lie where its heap begins.
        """
        offsets = self.arena.page.offsets(length)
        if self.empty and offsets.shape[1] == len(self.layouts):
            offsets[:, self.empty] = self.arena.base(self.arena.heap)
        return offsets

    @cached_property
    def empty(self) -> list[int]:
        """Outputs that hold nothing."""
        return [number for number, layout in enumerate(self.layouts) if not layout.num_bytes]

    def holds(self, offsets: Integers) -> bool:
        """Whether what it says of its outputs' places is possible: (length, outputs a call)."""
        if offsets.ndim != 2 or offsets.shape[1] != len(self.layouts) or not len(self.layouts):
            return False
        last, items = self.places
        return bool(((offsets >= self.arena.base(self.arena.heap)) & (offsets <= last) & (offsets % items == 0)).all())

    def rows(self, offsets: Integers, plan: Plan, out: Integers | None = None) -> Integers:
        """Which of its blocks a plan samples, of outputs that lie where it `holds` them."""
        rows = np.add(offsets[plan.calls, plan.tensors], plan.starts, out=out)
        rows -= self.arena.base(self.arena.heap)
        return np.minimum(rows, len(self.blocks) - 1, out=rows)

    def sampled(self, offsets: Integers, plan: Plan) -> Sample:
        """What a plan samples, on the host: for where no clock runs, and others use the device."""
        rows = torch.from_numpy(self.rows(offsets, plan)).to(self.blocks.device)
        return Sample(plan, torch.index_select(self.blocks, 0, rows).cpu(), self.layouts)

    def output(self, offsets: Integers, call: int, tensor: int) -> torch.Tensor:
        """A whole output of the last window where it lies, until it is released."""
        layout = self.layouts[tensor]
        region, offset = self.arena.locate(int(offsets[call, tensor]))
        return region.tensor(offset, layout.shape, layout.stride, layout.dtype)


class Stopwatch:
    """The judge's clock on one device. Lives as long as the judge does.

    Args:
        device: CUDA device.
    """

    def __init__(self, device: int = 0) -> None:
        self.device = torch.device("cuda", device)
        properties = torch.cuda.get_device_properties(self.device)
        self.l2_bytes = int(properties.L2_cache_size)
        self._scratch = torch.empty(max(4 * self.l2_bytes, 1 << 26), dtype=torch.uint8, device=self.device)
        self._rows = torch.empty(NUM_BLOCKS, dtype=torch.int64, device=self.device)
        self._pinned = torch.empty(NUM_BLOCKS, dtype=torch.int64, pin_memory=True)
        self._numpy: Integers = self._pinned.numpy()

    def flush(self) -> float:
        """Push everything out of the cache and wait; how long that took, in microseconds."""
        torch.cuda.synchronize(self.device)
        start = time.perf_counter_ns()
        self._scratch.zero_()
        torch.cuda.synchronize(self.device)
        return (time.perf_counter_ns() - start) / 1000

    def time(
        self,
        side: Side,
        length: int,
        plan: Plan,
        *,
        stamp: Stamp | None = None,
        timeout: float = 30.0,
        with_events: bool = False,
        is_warmed: bool = False,
        is_woken: bool = False,
        following: Side | None = None,
    ) -> Timed:
        """Time a window of `length` calls. The inputs must be in place.

        Args:
            side: the process; its `CallLoop` must be serving.
            length: calls.
            plan: what to sample, from `draw_plan` for this length and these layouts. Sides may share one.
            stamp: changes the inputs a last time, when the cache is cold and with the signal that starts the clock.
            timeout: seconds.
            with_events: whether the contestant times its calls too (which costs it a few microseconds a call).
            is_warmed: whether it makes a call before the window, on its last argument set.
            is_woken: whether `wake` was called for this side; else that is done now.
            following: the side to wake once the clock has stopped, for it is timed next.

        Raises:
            page.Late: it took too long; and what `side.check` raises.
        """
        blocks = side.blocks
        private = torch.empty((NUM_BLOCKS, BLOCK_BYTES), dtype=torch.uint8, device=self.device)
        deadline = time.monotonic() + timeout
        page = side.arena.page
        if not is_woken:
            self.wake(side)
        page.wait_done(deadline, side.check)  # Before the caches are flushed and the inputs change a last time.
        prepare_us = self.flush()
        if stamp is not None:
            stamp.exchange()
            torch.cuda.synchronize(self.device)
        with alone_with_the_interpreter():
            prime_us, state = self._prime(side, deadline, is_warmed=is_warmed)
            if stamp is not None:
                page.put_last(*stamp.last)
            start = taken = time.perf_counter_ns()
            if state == pages.OK:
                page.go(length, pages.WITH_EVENTS if with_events else 0)
                page.wait_taken(deadline, side.check)
                taken = time.perf_counter_ns()
                state = page.wait_done(deadline, side.check)
            done = time.perf_counter_ns()
            offsets = side.told(length)
            in_bounds = state == pages.OK and side.holds(offsets)
            if in_bounds:
                side.rows(offsets, plan, out=self._numpy)
                self._rows.copy_(self._pinned, non_blocking=True)
                torch.index_select(blocks, 0, self._rows, out=private)
                torch.cuda.synchronize(self.device)
            stop = time.perf_counter_ns()
        if stamp is not None:
            stamp.settle()
        if following is not None:
            self.wake(following)
        return Timed(
            length=length,
            taken_us=(taken - start) / 1000,
            stopped=stop / 1e9,
            wall_us=(stop - taken) / 1000,
            done_us=(done - taken) / 1000,
            prepare_us=prepare_us,
            prime_us=prime_us,
            state=state,
            in_bounds=in_bounds,
            disjoint=in_bounds and disjoint(offsets, side.lengths),
            sample=Sample(plan, private, side.layouts) if in_bounds else None,
            offsets=offsets,
            spans_us=tuple(page.spans_us(length)) if with_events else (),
        )

    def wake(self, side: Side) -> None:
        """Have a side leave its nap; its window must be the next thing that it is told of."""
        side.arena.page.go(0, pages.WAKE)

    def await_awake(self, side: Side, timeout: float = 30.0) -> None:
        """Wait until a side has left its nap."""
        side.arena.page.wait_done(time.monotonic() + timeout, side.check)

    def order_release(self, side: Side) -> None:
        """Let a side free the outputs of its last window, without waiting for that."""
        side.arena.page.go(0, pages.RELEASE)

    def await_release(self, side: Side, timeout: float = 30.0) -> None:
        """Wait until a side has freed what it was told to."""
        side.arena.page.wait_done(time.monotonic() + timeout, side.check)

    def end(self, side: Side) -> None:
        """End a side's series: its `CallLoop.serve` returns.

        What it was told last it does first, if it lives: one order would hide the other.
        """
        with contextlib.suppress(pages.Late):
            side.arena.page.wait_done(time.monotonic() + END_SECONDS, lambda: None)
        side.arena.page.go(0)

    def output(self, side: Side, timed: Timed, call: int, tensor: int) -> torch.Tensor:
        """A copy of one whole output of the last window, before it is released."""
        return side.output(timed.offsets, call, tensor).clone()

    def _prime(self, side: Side, deadline: float, *, is_warmed: bool) -> tuple[float, int]:
        page = side.arena.page
        start = time.perf_counter_ns()
        page.go(0, pages.PRIME | (pages.WARM if is_warmed else 0))
        state = page.wait_done(deadline, side.check)
        return (time.perf_counter_ns() - start) / 1000, state


def disjoint(offsets: Integers, lengths: Sequence[int]) -> bool:
    """Whether no memory belongs to two rows of `offsets` (calls); outputs of one call may share theirs."""
    calls = np.repeat(np.arange(len(offsets)), offsets.shape[1])
    starts = offsets.reshape(-1)
    order = np.argsort(starts, kind="stable")
    calls, starts, ends = calls[order], starts[order], (offsets + np.array(lengths)[None]).reshape(-1)[order]
    reach, owner = -1, -1
    for call, start, end in zip(calls.tolist(), starts.tolist(), ends.tolist(), strict=True):
        if call != owner and start < reach and end > start:
            return False
        if end > reach:
            reach, owner = end, call
    return True
