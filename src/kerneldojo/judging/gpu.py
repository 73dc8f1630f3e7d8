"""One GPU as the judge holds it: a context and a stopwatch of the judge's own, and memory to share."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection
from pathlib import Path

import torch

from kerneldojo.contestant.scratch import own_folder
from kerneldojo.devices.cores import cores_of_gpus
from kerneldojo.devices.cuda import toolchain
from kerneldojo.devices.cuda.arena import CudaArena
from kerneldojo.devices.cuda.clock import Device as Clock
from kerneldojo.devices.cuda.driver import enter_context
from kerneldojo.devices.cuda.memory import SharedRegion, is_out_of_memory
from kerneldojo.devices.cuda.precompiled import Precompiled, Precompiler
from kerneldojo.devices.cuda.shelf import Shelf
from kerneldojo.devices.cuda.spare import Spare
from kerneldojo.devices.cuda.window import Stopwatch
from kerneldojo.devices.specs import like
from kerneldojo.files import cache_folder
from kerneldojo.judging.alone import Alone
from kerneldojo.judging.canary import Canary
from kerneldojo.judging.division import divide, larger
from kerneldojo.judging.gated_bench import Bench
from kerneldojo.judging.reference_times import ReferenceTimes
from kerneldojo.judging.servers import ForkServer, gpu_server
from kerneldojo.judging.shares import Shares
from kerneldojo.schema.pace import Pace

WARM_SECONDS = 0.2
"""How long the canary sings before its baseline is taken; clocks rise within half of that."""
SHARED_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")


class CudaBench(Bench):
    """One GPU: a context of the judge's own, a stopwatch, and a fork server for what runs there.

    Args:
        index: CUDA device.
        num_verdicts: verdicts at once, fewer where its memory does not allow so many; they share its memory evenly.
        reuse_reference_times: whether a problem's reference time serves several verdicts; it bounds others in any case.
        cores: those that this device has to itself, of which some are reserved for windows; by default its even share
            of those that this process may use.
        pace: how its windows follow each other.
        begun: a fork server that has been started for a GPU already; closed if it is another's.
    """

    def __init__(
        self,
        index: int,
        *,
        num_verdicts: int = 1,
        reuse_reference_times: bool = False,
        cores: Collection[int] = (),
        pace: Pace | None = None,
        begun: ForkServer | None = None,
    ) -> None:
        properties = torch.cuda.get_device_properties(index)
        uuid = f"GPU-{properties.uuid}"
        total_bytes = int(properties.total_memory)
        clock = Clock(uuid)
        position, count = clock.place()
        cores = cores or cores_of_gpus(count, sorted(os.sched_getaffinity(0)))[position]
        self._lock = threading.Lock()
        self._capability = (int(properties.major), int(properties.minor))
        self._precompiler: Precompiler | None = None
        server = gpu_server(uuid)
        if begun is not None and begun.environment == server.environment:
            server = begun
        elif begun is not None:
            begun.close()
        pace = pace or Pace()
        shares = divide(num_verdicts, total_bytes, pace.contexts_ahead)
        super().__init__(
            server,
            shares,
            f"cuda:{index}",
            cores,
            Alone.of(total_bytes),
            pace,
            larger(shares.capacity, total_bytes) if pace.larger_shares else (),
        )
        self.index = index
        self.name = properties.name
        if (emulated := like(self.name, self._capability)) is not None:
            self.emulated = emulated.name
        self.clock = clock
        self.reference_times = ReferenceTimes(is_reused=reuse_reference_times)
        self._stopwatch: Stopwatch | None = None
        self._spare = Spare(index) if self.pace.recycle_memory else None

    @property
    def stopwatch(self) -> Stopwatch:
        """The judge's clock on this device; its scratch memory is there since `enter`."""
        assert self._stopwatch is not None
        return self._stopwatch

    def enter(self) -> None:
        """Make the device current. The first to come makes the stopwatch, and the canary while nothing else runs."""
        enter_context(self.index)
        with self._lock:
            if self._stopwatch is None:
                stopwatch = Stopwatch(self.index)
                canary = Canary(stopwatch.flush, lambda: self.clock.read().sm_mhz)
                canary.learn(WARM_SECONDS)
                self._canary = canary
                self._stopwatch = stopwatch

    def precompiled(self) -> Precompiled:
        """See `Bench.precompiled`; begun for the first candidate that has a use for it."""
        with self._lock:
            if self._precompiler is None:
                tools = toolchain.find(self._capability)
                self._precompiler = Precompiler(tools, own_folder(), Shelf(cache_folder("headers"), tools))
            return self._precompiler.made

    def close(self) -> None:
        """See `Bench.close`."""
        try:
            super().close()
        finally:
            if self._stopwatch is not None and not self.is_broken():
                enter_context(self.index)
                self.tidy(most_bytes=0)  # Whoever goes on without a judge may have a use for it.
            with self._lock:
                if self._precompiler is not None:
                    self._precompiler.close()

    def new_arena(
        self, inputs: SharedRegion | None, shares: Shares, *, silent: bool = False, is_runners: bool = False
    ) -> CudaArena:
        """See `Bench.new_arena`. What a runner has is freed when it is idle, so it takes nothing that others left."""
        own = SharedRegion.create(shares.inputs_bytes, self.index) if is_runners and not shares.num_timed else None
        try:
            arena = CudaArena.create(
                shares.exchange_bytes,
                shares.runner_heap_bytes if is_runners else shares.heap_bytes,
                device=self.index,
                inputs=inputs or own,
                silent=silent,
                owns_inputs=own is not None,
                spare=self._spare if shares == self.shares and not is_runners else None,
            )
            arena.in_place = shares.in_place
            return arena
        except BaseException:
            if own is not None:
                own.close()
            raise

    def arena_ahead(self) -> CudaArena | None:
        """See `Bench.arena_ahead`: of memory that was cleared before, for nothing may run on the device now."""
        sizes = (self.shares.exchange_bytes, self.shares.heap_bytes)
        if self._spare is None or (regions := self._spare.take_cleared(sizes)) is None:
            return None
        try:
            return CudaArena.over(regions, self.index, spare=self._spare)
        except BaseException:
            for region in regions:
                region.close()
            raise

    def hand_out(self, arena: CudaArena, *, silent: bool) -> None:
        """See `Bench.hand_out`."""
        arena.page.silent = silent

    def extend(self, arena: CudaArena, inputs: SharedRegion | None) -> tuple[list[int], list[int]]:
        """See `Bench.extend`."""
        if inputs is not None:
            return arena.extend(self.shares.timed_heap_bytes, inputs)
        own = SharedRegion.create(self.shares.inputs_bytes, self.index)
        try:
            return arena.extend(self.shares.timed_heap_bytes, own, owns_inputs=True)
        except BaseException:
            own.close()
            raise

    def tidy(self, most_bytes: int | None = None) -> None:
        """See `Bench.tidy`; by default its own share."""
        allowed = self.shares.judge_bytes if most_bytes is None else most_bytes
        if self._spare is not None:
            if most_bytes == 0:
                self._spare.evict()
            else:
                self._spare.clear()
        if torch.cuda.memory_reserved(self.index) > allowed:
            torch.cuda.empty_cache()

    @property
    def has_all_tools(self) -> bool:
        """See `Bench.has_all_tools`: extensions can be built."""
        tools = toolchain.find(self._capability)
        return tools.nvcc is not None and tools.cuda_home is not None and tools.can_link

    def free_bytes(self) -> int:
        """See `Bench.free_bytes`."""
        return torch.cuda.mem_get_info(self.index)[0]

    def memory(self) -> str:
        """See `Bench.memory`."""
        figures = {
            "free": self.free_bytes(),
            "in the judge's tensors": torch.cuda.memory_allocated(self.index),
            "kept by its allocator": torch.cuda.memory_reserved(self.index),
        }
        return ", ".join(f"{size / (1 << 30):.1f} GiB {name}" for name, size in figures.items())

    def is_broken(self) -> bool:
        """Whether a kernel of ours failed, after which a context answers every call with that failure."""
        try:
            torch.cuda.synchronize(self.index)
        except torch.AcceleratorError as error:
            return not is_out_of_memory(error)
        return False

    def device_nodes(self) -> list[str]:
        """What the driver's library opens for this GPU; the other GPUs of the machine are out of reach."""
        nodes = [Path("/dev", name) for name in (*SHARED_NODES, f"nvidia{self.clock.minor()}")]
        return [str(node) for node in nodes if node.exists()]
