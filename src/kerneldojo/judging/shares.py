"""How a GPU's memory is divided: among verdicts under way, contexts that wait for the next, and the judge.

Everything is counted in *parts* of one size. Each process of a verdict has an exchange of one part and a heap of two
for its tensors. The judge needs about two parts a verdict for the copies that it compares. Contexts take memory of
their own, whatever they do; runners that wait have no other.

What is timed needs more: timed inputs, that reference runner, contestant and silent twin map alike, and room for the
outputs of as many calls. The more of them fit, the longer a window is and the fewer are needed. With one or two
verdicts at once they have that from the beginning: a part for inputs, and half of their heap. With more, few are timed
or about to be at any time. So a verdict gets that memory when its rounds are passed, in its turn (`judging.turns`), and
its processes then have another heap: outputs have as much of it as there is for inputs, and calls what they had in the
rounds.

Processes that were opened ahead have a contestant's first share where what is timed gets its memory late and there is
room for it. Else they have none: elsewhere what a contestant has depends on its runner.

A problem that does not fit is judged beside others that do not, half as many at once or a quarter, where
`Pace.larger_shares` says so: nothing is kept or made ahead then, and memory for timing is there from the beginning.
What fits nowhere else is judged alone, with all of the device and another division: no runner is kept, inputs have
two parts (a slope needs two sets of them), and results stay in the heap, from which the judge copies them, so that an
exchange holds arguments alone. Its audit comes first, when there is a reference runner and no more, and the judge needs
the answers to several draws at once. On 150 GB the largest tensor may have 8 GiB, where a share of one allows 4.2.

What does not fit even so has no third process beside the other two: a silent twin comes when the contestant is gone,
and the reference runner has no more than two answers need. Then the largest tensor may have 11 GiB on 150 GB, and 6 on
80: of KernelBench's elementwise problems most have such of exactly 6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

CONTEXT_BYTES = 704 << 20
"""Device memory of one process' context with what torch and Triton load into it (an upper estimate; 0.68 GiB seen)."""
LEAN_CONTEXT_BYTES = 512 << 20
"""Of one that is lean (`CudaPlatform.open`), as those of reference runners and of what was opened ahead are."""
JUDGE_BYTES = 2 << 30
"""The judge's own context, its flushing buffer, and what its allocator keeps."""
HEAP_PARTS = 2
JUDGE_PARTS = 2
"""The judge's copies, for each verdict."""
NUM_PROCESSES = 3
"""Of each verdict: reference runner, contestant and twin."""
FEWEST_AHEAD = 2
"""Contexts that are made ahead, if any are, also where there is hardly room for them."""
FEWEST_STAGED = 3
"""Verdicts at once from which on memory for timing comes late: for one in a window, and for those that prepare for
theirs or are cleared away after it."""
MOST_BARE = 6
"""Verdicts at once, at most, where there is no room for the memory of what is opened ahead: on 80 GB seven made no more
a minute than six (docs/throughput.md)."""
FEWEST_TIMED = 2
"""Verdicts that have such memory at once, at least: one in a window, and the next."""
TIMED_INPUT_PARTS = (3.0, 3.5, 4.0, 5.0, 6.0, 7.0)
"""For the inputs of timed calls, and for their outputs in each process: as many as there is room for without fewer
runners or contexts, until these are `ENOUGH_INPUT_BYTES`."""
ENOUGH_INPUT_BYTES = 60 * (64 << 20)
"""Sixty calls on 64 MiB: with windows of so many a series is sharp after the fewest rounds that it may have."""
AHEAD_PARTS = 1 + HEAP_PARTS
"""Of a process that was opened ahead, where it has any."""
LARGEST_SHARE = 16
"""A part is at most this fraction of the device."""
LEAST_PART_BYTES = 256 << 20
"""With less than this, hardly any problem fits: then fewer verdicts are let in."""
ROOMY_PART_BYTES = 448 << 20
"""With less than this, problems of ordinary size do not fit: then less is kept, made ahead, or timed late.

For a tensor of 64 MiB audits and rounds place up to 448 MiB in an exchange, and a product of two takes 0.8 GiB of a
heap in double precision. With 313 MiB a part, eight at once on 80 GB, nine of ten such problems were judged alone:
30 verdicts a minute, where another host had made 92 before.
"""
MAX_KEPT = 12
"""Idle reference runners, wherever memory would allow more."""
WHOLE_INPUT_PARTS = 2.0
WHOLE_HEAP_PARTS = 2.9
WHOLE_JUDGE_PARTS = 3.1
WHOLE_PARTS = 3 * (1 + WHOLE_HEAP_PARTS) + WHOLE_INPUT_PARTS + WHOLE_JUDGE_PARTS
"""Of one verdict that has the device alone: inputs, the reference's answer and the candidate's are the judge's."""
AUDIT_HEAP_PARTS = 5.0
AUDIT_JUDGE_PARTS = 9.5
AUDIT_INPUT_PARTS = 1 / 64
"""Of an audit that does: nothing is timed, but the answers to three draws are compared, and those of other modules."""
LONE_RUNNER_PARTS = 2.3
LONE_PARTS = 2 + WHOLE_HEAP_PARTS + LONE_RUNNER_PARTS + WHOLE_INPUT_PARTS + WHOLE_JUDGE_PARTS
"""Of one verdict that has the device alone, and no twin beside the contestant."""
LONE_AUDIT_HEAP_PARTS = 3.1
LONE_AUDIT_JUDGE_PARTS = 8.1
"""Of its audit."""


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
        parts = self.capacity * (self.num_processes * (1 + self.heap_parts) + self.judge_parts)
        parts -= self.capacity * (self.heap_parts - (self.runner_heap_parts or self.heap_parts))
        parts += _timed_parts(self.num_timed, self.input_parts) if self.num_timed else self.capacity * self.input_parts
        parts += AHEAD_PARTS * self.num_ahead if self.are_furnished else 0
        contexts = contexts_bytes(self.capacity, self.num_kept, self.num_ahead)
        return JUDGE_BYTES + int(parts * self.part_bytes) + contexts

    @classmethod
    def of(cls, num_verdicts: int, total_bytes: int, num_ahead: int = 0) -> Shares:
        """Divide a device of `total_bytes`: fewer verdicts than asked for where they would not fit.

        Contexts are made ahead, `num_ahead` of them, only where there are several verdicts at once. One runner is kept
        where one verdict is judged at a time, two more for each further verdict, at most `MAX_KEPT`. Where there is
        hardly room for the verdicts there are fewer of both, and memory for timing does not come late.
        """
        fewest = min(num_ahead, FEWEST_AHEAD)
        capacity = _capacity(max(1, num_verdicts), total_bytes, fewest)
        num_timed = _num_timed(capacity) if capacity >= FEWEST_STAGED else 0
        num_ahead = num_ahead if capacity > 1 else 0
        most_kept = most_runners(capacity)

        def size(num_kept: int, num_ahead: int, input_parts: float, *, furnished: bool = False) -> int:
            contexts, timed = contexts_bytes(capacity, num_kept, num_ahead), _timed_parts(num_timed, input_parts)
            return _part_bytes(total_bytes, capacity, contexts, timed, num_ahead if furnished else 0)

        def has_room(num_kept: int, num_ahead: int, *, furnished: bool = False) -> bool:
            return size(num_kept, num_ahead, input_parts, furnished=furnished) >= ROOMY_PART_BYTES

        input_parts = _input_parts(lambda parts: size(most_kept, num_ahead, parts, furnished=True))
        while num_timed and not has_room(capacity, fewest):  # A runner that is made anew costs more than windows.
            num_timed = num_timed - 1 if num_timed > FEWEST_TIMED else 0
        while num_ahead > fewest and not has_room(capacity, num_ahead):
            num_ahead -= 1
        num_kept = most_kept
        while num_kept and not has_room(num_kept, num_ahead):
            num_kept -= 1
        are_furnished = bool(num_timed and num_ahead) and has_room(num_kept, num_ahead, furnished=True)
        if num_timed and not are_furnished:  # What that would have taken, windows may have.
            input_parts = _input_parts(lambda parts: size(num_kept, num_ahead, parts))
        part_bytes = size(num_kept, num_ahead, input_parts, furnished=are_furnished)
        if capacity == 1:  # Or a problem that has to be judged alone would have smaller parts than the others.
            part_bytes = min(part_bytes, cls.whole(total_bytes).part_bytes)
        return cls(
            capacity,
            num_kept,
            max(part_bytes, 1 << 21),
            input_parts=input_parts if num_timed else 1,
            num_ahead=num_ahead,
            num_timed=num_timed,
            are_furnished=are_furnished,
        )

    @classmethod
    def larger(cls, num_verdicts: int, total_bytes: int) -> tuple[Shares, ...]:
        """Divisions for problems that need more than a share of so many: each for half as many, down to two."""
        fewer = [num_verdicts >> halvings for halvings in range(1, num_verdicts.bit_length() - 1)]
        return tuple(cls(num, 0, _part_bytes(total_bytes, num, contexts_bytes(num, 0))) for num in fewer)

    @classmethod
    def whole(cls, total_bytes: int) -> Shares:
        """All of a device for one verdict, on a problem that needs more than its share."""
        free = total_bytes - JUDGE_BYTES - contexts_bytes(1, 0)
        return cls(
            capacity=1,
            num_kept=0,
            part_bytes=max(int(free / WHOLE_PARTS), 1 << 21),
            heap_parts=WHOLE_HEAP_PARTS,
            input_parts=WHOLE_INPUT_PARTS,
            judge_parts=WHOLE_JUDGE_PARTS,
            in_place=True,
        )

    @classmethod
    def auditing(cls, total_bytes: int) -> Shares:
        """All of a device for one audit, of a problem that is then judged with `whole`: parts are of the same size."""
        return replace(
            cls.whole(total_bytes),
            heap_parts=AUDIT_HEAP_PARTS,
            input_parts=AUDIT_INPUT_PARTS,
            judge_parts=AUDIT_JUDGE_PARTS,
            num_processes=1,
        )

    @classmethod
    def lone(cls, total_bytes: int) -> Shares:
        """All of a device for one verdict without a twin beside, on a problem that needs more than `whole` gives."""
        free = total_bytes - JUDGE_BYTES - contexts_bytes(1, 0)
        return replace(
            cls.whole(total_bytes),
            part_bytes=max(int(free / LONE_PARTS), 1 << 21),
            num_processes=2,
            runner_heap_parts=LONE_RUNNER_PARTS,
        )

    @classmethod
    def lone_auditing(cls, total_bytes: int) -> Shares:
        """All of a device for one audit, of a problem that is then judged with `lone`."""
        return replace(
            cls.lone(total_bytes),
            heap_parts=LONE_AUDIT_HEAP_PARTS,
            runner_heap_parts=None,
            input_parts=AUDIT_INPUT_PARTS,
            judge_parts=LONE_AUDIT_JUDGE_PARTS,
            num_processes=1,
        )


class Alone(NamedTuple):
    """What has all of a device."""

    verdict: Shares
    audit: Shares
    """Before it."""

    @classmethod
    def of(cls, total_bytes: int) -> tuple[Alone, ...]:
        """Divisions of a device for one verdict, in the order in which they are tried."""
        return (
            cls(Shares.whole(total_bytes), Shares.auditing(total_bytes)),
            cls(Shares.lone(total_bytes), Shares.lone_auditing(total_bytes)),
        )


def most_runners(capacity: int) -> int:
    """Reference runners that wait for the next verdict, of so many at once, where memory is no reason for fewer."""
    return min(2 * capacity - 1, MAX_KEPT)


def contexts_bytes(capacity: int, num_kept: int, num_ahead: int = 0) -> int:
    """What contexts may take that exist at once, the judge's own not counted: a contestant and a twin may have been
    opened when they were needed, and be no lean ones."""
    return 2 * capacity * CONTEXT_BYTES + (capacity + num_kept + num_ahead) * LEAN_CONTEXT_BYTES


def _capacity(num_verdicts: int, total_bytes: int, num_ahead: int) -> int:
    """So many verdicts at once that memory for timing can come late to each, if that is three or more; else so many as
    there is room for at all."""
    for capacity in range(num_verdicts, FEWEST_STAGED - 1, -1):
        timed = _timed_parts(_num_timed(capacity), TIMED_INPUT_PARTS[0])
        contexts = contexts_bytes(capacity, capacity, num_ahead)
        num_furnished = num_ahead if capacity > MOST_BARE else 0
        if _part_bytes(total_bytes, capacity, contexts, timed, num_furnished) >= ROOMY_PART_BYTES:
            return capacity
    for capacity in range(num_verdicts, 1, -1):
        if _part_bytes(total_bytes, capacity, contexts_bytes(capacity, 0, num_ahead)) >= LEAST_PART_BYTES:
            return capacity
    return 1


def _num_timed(capacity: int) -> int:
    """Verdicts of so many that have memory for timing at once: half of a verdict's time is spent with it."""
    return max(FEWEST_TIMED, capacity // 2)


def _input_parts(part_bytes: Callable[[float], int]) -> float:
    """The first of `TIMED_INPUT_PARTS` that are enough, or the last with which a part is roomy; `part_bytes` says how
    large one is then."""
    chosen = TIMED_INPUT_PARTS[0]
    for more in TIMED_INPUT_PARTS[1:]:
        if chosen * part_bytes(chosen) >= ENOUGH_INPUT_BYTES or part_bytes(more) < ROOMY_PART_BYTES:
            break
        chosen = more
    return chosen


def _timed_parts(num_timed: int, input_parts: float) -> float:
    """What verdicts have that are about to be timed, all of them together."""
    return num_timed * (input_parts + NUM_PROCESSES * (input_parts + HEAP_PARTS))


def _part_bytes(
    total_bytes: int, capacity: int, contexts: int, timed_parts: float = 0.0, num_furnished: int = 0
) -> int:
    free = total_bytes - JUDGE_BYTES - contexts
    parts = capacity * (NUM_PROCESSES * (1 + HEAP_PARTS) + JUDGE_PARTS) + (timed_parts or capacity)
    parts += num_furnished * AHEAD_PARTS
    return min(int(free / parts), total_bytes // (LARGEST_SHARE * capacity))
