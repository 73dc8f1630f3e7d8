"""A bench's memory of its device: which process of a verdict gets how much of it, and when.

Most have a share from the moment they are made. Where what is timed gets its memory late, a verdict asks for its turn
when its rounds are passed; and a process that was opened ahead may have a contestant's share before anybody knows whose
it will be. How much all of that is, `judging.division` and `judging.alone` say.
"""

from __future__ import annotations

import gc
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kerneldojo.devices.cuda.driver import CudaError
from kerneldojo.judging.alone import Alone
from kerneldojo.judging.audits import JUDGES_SIDE, Limits
from kerneldojo.judging.contestant import Contestant
from kerneldojo.judging.ends import Infrastructure
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.reference import Reference
from kerneldojo.judging.runners import Runners
from kerneldojo.judging.shares import Shares
from kerneldojo.judging.turns import Turn, Turns

TURN_SECONDS = 600.0
"""For memory to be timed in: others ahead may be slow kernels."""

T = TypeVar("T")


class BenchMemory(ABC):
    """Arenas for the processes of verdicts; what a device has to say of them is abstract here.

    Args:
        shares, alone, larger: see `gated_bench.Bench`.
    """

    def __init__(
        self,
        shares: Shares,
        alone: Sequence[Alone] = (),
        larger: Sequence[Shares] = (),
    ) -> None:
        self.shares = shares
        self.alone = tuple(alone) or (Alone(shares, shares),)
        self.rooms = (shares, *larger, *(one.verdict for one in self.alone))
        """Divisions by the size of what fits, one of which holds at a time: see `Gate.admit`."""
        self.timed = Turns(shares.num_timed) if shares.num_timed else None
        """Who has memory for timing; None where everybody has it from the beginning."""
        self.runners = Runners(shares.num_kept)

    def enter(self) -> None:  # noqa: B027 - nothing to do without a GPU
        """Make the device's context current in this thread: memory is mapped into the current one."""

    @abstractmethod
    def new_arena(self, inputs: Any, shares: Shares, *, silent: bool = False, is_runners: bool = False) -> Any:
        """Memory for one process, so much of it.

        Args:
            inputs: the runner's timed inputs, for a contestant; None where they come later, and for a runner.
            shares: how much.
            silent: whether it is a silent twin's.
            is_runners: whether it is a reference runner's, and has timed inputs of its own unless they come later.
        """

    @abstractmethod
    def extend(self, arena: Any, inputs: Any) -> tuple[list[int], list[int]]:
        """Add what timing needs to an arena: see `CudaArena.extend`. Without `inputs`, those are the arena's own.

        Asked only where memory for timing comes late (`Shares.num_timed`).
        """

    def arena_ahead(self) -> Any | None:
        """Memory for a contestant that is not known yet, which may be taken while others are timed; None for none.

        Asked only where memory for timing comes late.
        """
        return None

    def hand_out(self, arena: Any, *, silent: bool) -> None:  # noqa: B027 - nothing to say without a GPU
        """Say of memory that was taken ahead whose it has become: a contestant's, or a silent twin's."""

    def room(self, guest: Guest) -> Shares:
        """The memory of one verdict: its share in the division that holds."""
        return self.rooms[guest.room]

    def audit_room(self, guest: Guest) -> Shares:
        """The memory of its audit, if that has the device alone, too: of the same room."""
        return self.alone[guest.room - len(self.rooms)].audit

    def next_room(self, room: int, reason: str = "") -> int | None:
        """Where there may be what was missing in a room; None if nowhere.

        Each that is tried on the way begins when everybody else has left, and takes contexts to be found too small.

        Args:
            room: where.
            reason: what it is that is known of it: how much arguments and packed results need is told in the words of
                `contestant.arena.Packer`, and that it was the judge who had no memory in those of `audits`.
        """
        here = self.rooms[room]
        told = re.search(r"(\d{1,18}) bytes needed", reason)
        needed_bytes = int(told[1]) if told else 0
        is_judges = JUDGES_SIDE in reason
        for number, there in enumerate(self.rooms[room + 1 :], room + 1):
            has_more = there.heap_bytes > here.heap_bytes and there.runner_heap_bytes >= here.runner_heap_bytes
            if here.in_place and there.in_place and is_judges:
                # What the judge has no room for are results, for which there must be heaps, too.
                has_more = there.judge_bytes > here.judge_bytes and there.heap_bytes > here.part_bytes
            elif here.in_place and there.in_place:
                has_more = (has_more or needed_bytes > here.exchange_bytes) and needed_bytes <= there.exchange_bytes
            elif not there.in_place:  # Where results stay in place arguments alone count, and nobody has told theirs.
                has_more = has_more and there.exchange_bytes >= needed_bytes
            if has_more:
                return number
        return None

    def limits(self, room: int) -> Limits:
        """What a room has for a problem. Who is alone, or has no less than anybody, may have a poorer oracle."""
        has, is_alone = self.rooms[room], room >= len(self.rooms) - len(self.alone)
        oracle = has.runner_heap_bytes if has.runner_heap_bytes < has.problem_bytes else None
        return Limits(has.problem_bytes, has.heap_bytes, is_alone or self.next_room(room) is None, oracle)

    def tidy(self, most_bytes: int | None = None) -> None:  # noqa: B027 - nothing to do without a GPU
        """Give back device memory that the judge itself keeps for later, if it is more than `most_bytes`."""

    def free_bytes(self) -> int:
        """Device memory that nobody has."""
        return 0

    def memory(self) -> str:
        """How the device's memory is used, for the log."""
        return ""

    def prepare_timing(self, turn: Turn, guest: Guest, reference: Reference) -> None:
        """Once it is a verdict's turn, give its runner the memory that it needs to be timed.

        Args:
            turn: the verdict's; to be given back when all but the runner are dead, and that one has let go.
            guest: the verdict.
            reference: whose own the timed inputs are.

        Raises:
            Infrastructure: it is never its turn.
        """
        if not guest.wait_for_others(turn.wait, TURN_SECONDS):
            raise Infrastructure(f"no memory to be timed in within {TURN_SECONDS:.0f} s")
        self.enter()
        self._extend(reference, None)

    def extend_arena(self, contestant: Contestant, reference: Reference) -> None:
        """The same for one of the candidate's processes; raises `Ruling` if it breaks."""
        self._extend(contestant, reference.hosted.arena.inputs)

    def _extend(self, party: Contestant | Reference, inputs: Any) -> None:
        arena = party.hosted.arena
        if party.extend(*self._with_room(lambda: self.extend(arena, inputs))):
            arena.leave_half()

    def _arena(self, inputs: Any, room: Shares, *, silent: bool = False, is_runners: bool = False) -> Any:
        return self._with_room(lambda: self.new_arena(inputs, room, silent=silent, is_runners=is_runners))

    def _with_room(self, allocate: Callable[[], T]) -> T:
        """What it allocates; once more where idle runners, or our own allocator, may have what was missing."""
        try:
            return allocate()
        except CudaError:
            self.runners.evict()
            gc.collect()  # Nothing of ours waits for this, as far as is known; here it would be missed.
            self.tidy(most_bytes=0)
            return allocate()
