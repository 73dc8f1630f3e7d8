"""One division of a GPU's memory: among verdicts under way, contexts that wait for the next, and the judge.

Everything is counted in *parts* of one size. Each process of a verdict has an exchange of one part and a heap of two
for its tensors. The judge needs about two parts a verdict for the copies that it compares. Contexts take memory of
their own, whatever they do; runners that wait have no other.

How large a part is, and what else there is of what, follows from how many verdicts there are at once
(`judging.division`), or that there is one (`judging.alone`).
"""

from __future__ import annotations

from dataclasses import dataclass

CONTEXT_BYTES = 704 << 20
"""Device memory of one process' context with what torch and Triton load into it (an upper estimate; 0.68 GiB seen)."""
LEAN_CONTEXT_BYTES = 512 << 20
"""Of one that is lean (`Presence.open`), as those of reference runners and of what was opened ahead are."""
JUDGE_BYTES = 2 << 30
"""The judge's own context, its flushing buffer, and what its allocator keeps."""
HEAP_PARTS = 2
JUDGE_PARTS = 2
"""The judge's copies, for each verdict."""
NUM_PROCESSES = 3
"""Of each verdict: reference runner, contestant and twin."""
AHEAD_PARTS = 1 + HEAP_PARTS
"""Of a process that was opened ahead, where it has any."""
MAX_KEPT = 12
"""Idle reference runners, wherever memory would allow more."""


@dataclass(frozen=True)
class Shares:
    """One device's division."""

    capacity: int
    """Verdicts at once."""
    num_kept: int
    """Reference runners that are kept alive for the next verdict on their problem, beside those in use."""
    part_bytes: int
    heap_parts: float = HEAP_PARTS
    input_parts: float = 1
    judge_parts: float = JUDGE_PARTS
    num_processes: int = NUM_PROCESSES
    runner_heap_parts: float | None = None
    """Of a reference runner, where that is less than of the others."""
    num_ahead: int = 0
    """Processes that have opened the device before anybody asks for them."""
    are_furnished: bool = False
    """Whether those have a contestant's memory, too."""
    num_timed: int = 0
    """Verdicts that have memory for timing at once; 0 if each has it from the beginning, the heap it has anyway."""
    in_place: bool = False
    """Whether results stay in the heap: see `contestant.arena.Arena.in_place`."""

    @property
    def exchange_bytes(self) -> int:
        """For arguments and packed results of one hosted process."""
        return self.part_bytes

    @property
    def heap_bytes(self) -> int:
        """For all tensors of one hosted process."""
        return int(self.heap_parts * self.part_bytes)

    @property
    def runner_heap_bytes(self) -> int:
        """For all tensors of a reference runner."""
        return int((self.runner_heap_parts or self.heap_parts) * self.part_bytes)

    @property
    def problem_bytes(self) -> int:
        """What a problem may need for its inputs and all that its reference makes of them."""
        return max(self.heap_bytes, self.runner_heap_bytes)

    @property
    def has_twin_beside(self) -> bool:
        """Whether there is memory for a silent twin while the contestant is there."""
        return self.num_processes >= NUM_PROCESSES

    @property
    def inputs_bytes(self) -> int:
        """For the inputs of timed calls."""
        return int(self.input_parts * self.part_bytes)

    @property
    def timed_heap_bytes(self) -> int:
        """For all tensors of one hosted process from when it is about to be timed, where that is another heap."""
        return int((self.input_parts + HEAP_PARTS) * self.part_bytes)

    @property
    def judge_bytes(self) -> int:
        """For the judge itself, all verdicts together."""
        return JUDGE_BYTES // 2 + int(self.capacity * self.judge_parts * self.part_bytes)

    @property
    def most_bytes(self) -> int:
        """What all of it takes at most."""
        contexts = contexts_bytes(self.capacity, self.num_kept, self.num_ahead)
        return JUDGE_BYTES + int(self.num_parts * self.part_bytes) + contexts

    @property
    def num_parts(self) -> float:
        """Of `part_bytes`, all together: contexts and what the judge has anyway are not counted."""
        parts = self.capacity * (self.num_processes * (1 + self.heap_parts) + self.judge_parts)
        parts -= self.capacity * (self.heap_parts - (self.runner_heap_parts or self.heap_parts))
        parts += timed_parts(self.num_timed, self.input_parts) if self.num_timed else self.capacity * self.input_parts
        return parts + (AHEAD_PARTS * self.num_ahead if self.are_furnished else 0)


def most_runners(capacity: int) -> int:
    """Reference runners that wait for the next verdict, of so many at once, where memory is no reason for fewer."""
    return min(2 * capacity - 1, MAX_KEPT)


def contexts_bytes(capacity: int, num_kept: int, num_ahead: int = 0) -> int:
    """What contexts may take that exist at once, the judge's own not counted: a contestant and a twin may have been
    opened when they were needed, and be no lean ones."""
    return 2 * capacity * CONTEXT_BYTES + (capacity + num_kept + num_ahead) * LEAN_CONTEXT_BYTES


def timed_parts(num_timed: int, input_parts: float) -> float:
    """What verdicts have that are about to be timed, all of them together."""
    return num_timed * (input_parts + NUM_PROCESSES * (input_parts + HEAP_PARTS))
