"""One GPU as the judge holds it: a gate, a stopwatch, a fork server, and reference runners that live on.

What is made here are the hosted processes of a verdict. Each has a session (a process, locked in) from the moment it
is asked for, and a context only once it is told to open its device: a context is what a GPU cannot make many of.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator
from pathlib import Path
from typing import Any

import torch

from kerneldojo.devices.cores import cores_of_gpus
from kerneldojo.devices.cuda.arena import CudaArena, enter_context
from kerneldojo.devices.cuda.clock import Device as Clock
from kerneldojo.devices.cuda.driver import CudaError
from kerneldojo.devices.cuda.memory import SharedRegion
from kerneldojo.devices.cuda.window import Stopwatch
from kerneldojo.judging.contestant import Contestant
from kerneldojo.judging.cores import Cores
from kerneldojo.judging.ends import HostedEnd, Infrastructure
from kerneldojo.judging.gate import Canary, Gate, Guest
from kerneldojo.judging.processes import ForkServer, Session
from kerneldojo.judging.protocol import Protocol
from kerneldojo.judging.reference import Reference
from kerneldojo.judging.reference_times import ReferenceTimes
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.runners import Runners
from kerneldojo.judging.shares import Shares
from kerneldojo.judging.surroundings import request
from kerneldojo.judging.verdict import Findings
from kerneldojo.schema import Candidate, Problem, content_hash

REFERENCE_SECONDS = 600.0
NUM_WINDOWS = 3
"""How often timing is tried when canaries say that something else used the device."""
SETTLE_SECONDS = 1.0
"""How long a window waits for what others had launched before they were frozen."""
WARM_SECONDS = 0.2
"""How long the canary sings before its baseline is taken; clocks rise within half of that."""
FEW_QUEUES = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
"""One hardware queue for each hosted process: contexts are what a GPU cannot make many of, and most of the making is
for queues (on an H200 with 16 at once: 334 contexts a minute with the default of 8, 918 with one). All sides have the
same; a candidate's streams may wait for each other where they would not with more."""
SHARED_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")


class GatedSession(Session):
    """A session whose process may be frozen for another verdict's sake, at no cost to its deadlines."""

    def __init__(self, server: ForkServer, arena: Any, request: dict[str, Any], guest: Guest) -> None:
        self._guest: Guest | None = None
        super().__init__(server, arena, request)
        self.attend(guest)

    def attend(self, guest: Guest) -> None:
        """Belong to this verdict from now on."""
        self._guest = guest
        guest.sessions.append(self)

    def part(self) -> None:
        """Belong to no verdict: nobody will freeze or thaw it for another's sake."""
        if self._guest is not None and self in self._guest.sessions:
            self._guest.sessions.remove(self)
        self._guest = None

    def collect(self, timeout: float) -> dict[str, Any]:
        """See `Session.collect`."""
        if self._guest is not None:
            timeout = self._guest.wait(self._door.has_frame, timeout)
        return super().collect(timeout)

    def close(self) -> None:
        """See `Session.close`."""
        self.part()
        super().close()


class Bench(ABC):
    """What does not depend on the device being a GPU: sessions, the gate, and runners that are kept.

    Args:
        server: where hosted processes are forked.
        shares: how many verdicts and runners there may be, and how much memory each has.
        device: as a session's request names it.
        cores: see `CudaBench`.
    """

    name = ""

    def __init__(self, server: ForkServer, shares: Shares, device: str, cores: Collection[int] = ()) -> None:
        self.server = server
        self.shares = shares
        self.device = device
        self.gate = Gate(shares.capacity, Cores.of(cores))
        """A timing window has the device to itself."""
        self.runners = Runners(shares.num_kept)
        self.reference_times: ReferenceTimes | None = None
        self.contexts_beside_windows = False
        """Whether a process with nothing of a candidate's in it may make its context, and one that was killed lose it,
        while another verdict has its window. Only where `benchmarks/throughput.py --only disturbance` shows that this
        moves no figure."""
        self._canary: Canary | None = None
        atexit.register(self.close)  # Its fork server did so before, so it is still there when runners end.

    def enter(self) -> None:  # noqa: B027 - nothing to do without a GPU
        """Make the device's context current in this thread: memory is mapped into the current one."""

    @abstractmethod
    def new_arena(self, inputs: Any, *, silent: bool) -> Any:
        """Memory for one process; with timed inputs of its own where `inputs` is None."""

    def clear(self, arena: Any) -> None:  # noqa: B027 - nothing to do without a GPU
        """Leave nothing of the last candidate's in the timed inputs of a runner that is used again."""

    def tidy(self, most_bytes: int | None = None) -> None:  # noqa: B027 - nothing to do without a GPU
        """Give back device memory that the judge itself keeps for later, if it is more than `most_bytes`."""

    def device_nodes(self) -> list[str] | None:
        """The nodes that hosted processes may use; None for a device that is not a GPU."""
        return None

    @contextlib.contextmanager
    def lent_reference(self, problem: Problem, protocol: Protocol, guest: Guest) -> Generator[Reference]:
        """A reference runner for one verdict, perhaps one that has served others; `prepare` it before use.

        It is kept for the next verdict only if this one ended in order, and what it was shared with is dead.
        """
        wanted = request(protocol, self.device, self.device_nodes())
        key = content_hash(problem.source, json.dumps(wanted, sort_keys=True))
        reference = self.runners.take(key)
        if reference is None:
            reference = Reference(self._session(protocol, guest, None, silent=False), problem, REFERENCE_SECONDS)
        else:
            assert isinstance(reference.hosted.session, GatedSession)
            reference.hosted.session.attend(guest)
            reference.renew(REFERENCE_SECONDS)
            self.clear(reference.hosted.arena)
        guest.budgets.append(reference.hosted)
        is_spent = True
        try:
            yield reference
            is_spent = False
        except Ruling:
            is_spent = False
            raise
        finally:
            assert isinstance(reference.hosted.session, GatedSession)
            reference.hosted.session.part()
            # One that compiled its baseline is not kept: torch falls back to eager after a few compilations.
            self.runners.give_back(key, reference, is_spent=is_spent or protocol.baseline == "compile")

    def contestant(
        self, candidate: Candidate, protocol: Protocol, guest: Guest, inputs: Any, *, silent: bool = False
    ) -> Contestant:
        """A fresh contestant; nothing of the candidate has run in it yet."""
        contestant = Contestant(self._session(protocol, guest, inputs, silent=silent), candidate, protocol.timeout)
        guest.budgets.append(contestant.hosted)
        return contestant

    def can_open(self, protocol: Protocol, guest: Guest, inputs: Any) -> bool:
        """Whether a process with nothing of anybody's in it can open the device now, in memory like a contestant's."""
        session = self._session(protocol, guest, inputs, silent=False)
        try:
            session.ask("open", timeout=60.0)
        except HostedEnd:
            return False
        finally:
            session.close()
        return True

    def _session(self, protocol: Protocol, guest: Guest, inputs: Any, *, silent: bool) -> Session:
        self.enter()
        try:
            arena = self.new_arena(inputs, silent=silent)
        except CudaError:
            self.runners.evict()  # What idle runners held, or our own allocator, may be what was missing.
            self.tidy(most_bytes=0)
            arena = self.new_arena(inputs, silent=silent)
        wanted = request(protocol, self.device, self.device_nodes())
        return GatedSession(self.server, arena, wanted, guest)

    def measure_alone(self, guest: Guest, findings: Findings, action: Callable[[], None]) -> None:
        """Run `action` with the device to itself; again if a canary before or after says that it had not.

        Raises:
            Infrastructure: the device was not idle in any of the windows.
        """
        for session in guest.sessions:  # All have cores reserved, or one side is timed on other cores than the other.
            session.wait_started()
        if self.gate.capacity == 1 or self._canary is None:
            with guest.window():
                action()  # Nobody else of ours is there, and the trials see strangers by themselves.
            return
        for _ in range(NUM_WINDOWS):
            with contextlib.ExitStack() as stack:
                with findings.stage("gate"):
                    stack.enter_context(guest.window())
                    is_clean = self._canary.becomes_clean(SETTLE_SECONDS)
                if not is_clean:
                    continue
                action()
                if self._canary.is_clean():
                    return
        raise Infrastructure(f"{self.device} was not idle in {NUM_WINDOWS} windows")

    def close(self) -> None:
        """End the fork server and all that hangs on it."""
        atexit.unregister(self.close)
        try:
            if len(self.runners):
                self.enter()
            self.runners.close()
        finally:
            self.server.close()


class CudaBench(Bench):
    """One GPU: a context of the judge's own, a stopwatch, and a fork server for what runs there.

    Args:
        index: CUDA device.
        num_verdicts: verdicts at once, fewer where its memory does not allow so many; they share its memory evenly.
        reuse_reference_times: whether a problem's reference time serves several verdicts.
        contexts_beside_windows: see `Bench`.
        cores: those that this device has to itself, of which some are reserved for windows; by default its even share
            of those that this process may use.
    """

    def __init__(
        self,
        index: int,
        *,
        num_verdicts: int = 1,
        reuse_reference_times: bool = False,
        contexts_beside_windows: bool = False,
        cores: Collection[int] = (),
    ) -> None:
        properties = torch.cuda.get_device_properties(index)
        uuid = f"GPU-{properties.uuid}"
        shares = Shares.of(num_verdicts, int(properties.total_memory))
        clock = Clock(uuid)
        position, count = clock.place()
        cores = cores or cores_of_gpus(count, sorted(os.sched_getaffinity(0)))[position]
        super().__init__(
            ForkServer("cuda", {"CUDA_VISIBLE_DEVICES": uuid, **FEW_QUEUES}), shares, f"cuda:{index}", cores
        )
        self.index = index
        self.name = properties.name
        self.clock = clock
        self.reference_times = ReferenceTimes() if reuse_reference_times else None
        self.contexts_beside_windows = contexts_beside_windows
        self._lock = threading.Lock()
        self._stopwatch: Stopwatch | None = None

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
                if self.shares.capacity > 1:
                    canary = Canary(stopwatch.flush)
                    canary.learn(WARM_SECONDS)
                    self._canary = canary
                self._stopwatch = stopwatch

    def new_arena(self, inputs: SharedRegion | None, *, silent: bool) -> CudaArena:
        """Exchange and heap; a reference runner's has the timed inputs too, which others then map."""
        own = SharedRegion.create(self.shares.inputs_bytes, self.index) if inputs is None else None
        try:
            return CudaArena.create(
                self.shares.exchange_bytes,
                self.shares.heap_bytes,
                device=self.index,
                inputs=inputs or own,
                silent=silent,
                owns_inputs=inputs is None,
            )
        except BaseException:
            if own is not None:
                own.close()
            raise

    def clear(self, arena: CudaArena) -> None:
        """See `Bench.clear`; some 3 TB/s."""
        if arena.inputs is not None:
            arena.inputs.bytes().zero_()
            torch.cuda.synchronize(arena.device)

    def tidy(self, most_bytes: int | None = None) -> None:
        """See `Bench.tidy`; by default its own share."""
        allowed = self.shares.judge_bytes if most_bytes is None else most_bytes
        if torch.cuda.memory_reserved(self.index) > allowed:
            torch.cuda.empty_cache()

    def device_nodes(self) -> list[str]:
        """The driver's nodes; CUDA_VISIBLE_DEVICES keeps the driver to one GPU."""
        numbered = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
        return [f"/dev/{name}" for name in (*SHARED_NODES, *numbered) if Path("/dev", name).exists()]
