"""How a GPU's memory is divided where verdicts are judged beside each other.

What is timed needs more than the rounds: timed inputs, that reference runner, contestant and silent twin map alike,
and room for the outputs of as many calls. The more of them fit, the longer a window is and the fewer are needed. With
one or two verdicts at once they have that from the beginning: a part for inputs, and half of their heap. With more,
few are timed or about to be at any time. So a verdict gets that memory when its rounds are passed, in its turn
(`judging.turns`), and its processes then have another heap: outputs have as much of it as there is for inputs, and
calls what they had in the rounds.

Processes that were opened ahead have a contestant's first share where what is timed gets its memory late and there is
room for it. Else they have none: elsewhere what a contestant has depends on its runner.

A problem that does not fit is judged beside others that do not, half as many at once or a quarter, where
`Pace.larger_shares` says so: nothing is kept or made ahead then, and memory for timing is there from the beginning.
What fits nowhere else is judged alone (`judging.alone`).
"""

from __future__ import annotations

from collections.abc import Callable

from kerneldojo.judging.alone import whole
from kerneldojo.judging.shares import (
    AHEAD_PARTS,
    HEAP_PARTS,
    JUDGE_BYTES,
    JUDGE_PARTS,
    NUM_PROCESSES,
    Shares,
    contexts_bytes,
    most_runners,
    timed_parts,
)

FEWEST_AHEAD = 2
"""Contexts that are made ahead, if any are, also where there is hardly room for them."""
FEWEST_STAGED = 3
"""Verdicts at once from which on memory for timing comes late: for one in a window, and for those that prepare for
theirs or are cleared away after it."""
MOST_BARE = 6
"""Verdicts at once, at most, where there is no room for the memory of what is opened ahead: on 80 GB seven made no more
a minute than six (docs/throughput-log.md)."""
FEWEST_TIMED = 2
"""Verdicts that have such memory at once, at least: one in a window, and the next."""
TIMED_INPUT_PARTS = (3.0, 3.5, 4.0, 5.0, 6.0, 7.0)
"""For the inputs of timed calls, and for their outputs in each process: as many as there is room for without fewer
runners or contexts, until these are `ENOUGH_INPUT_BYTES`."""
ENOUGH_INPUT_BYTES = 60 * (64 << 20)
"""Sixty calls on 64 MiB: with windows of so many a series is sharp after the fewest rounds that it may have."""
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


def divide(num_verdicts: int, total_bytes: int, num_ahead: int = 0) -> Shares:
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
        contexts, timed = contexts_bytes(capacity, num_kept, num_ahead), timed_parts(num_timed, input_parts)
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
        part_bytes = min(part_bytes, whole(total_bytes).part_bytes)
    return Shares(
        capacity,
        num_kept,
        max(part_bytes, 1 << 21),
        input_parts=input_parts if num_timed else 1,
        num_ahead=num_ahead,
        num_timed=num_timed,
        are_furnished=are_furnished,
    )


def larger(num_verdicts: int, total_bytes: int) -> tuple[Shares, ...]:
    """Divisions for problems that need more than a share of so many: each for half as many, down to two."""
    fewer = [num_verdicts >> halvings for halvings in range(1, num_verdicts.bit_length() - 1)]
    return tuple(Shares(num, 0, _part_bytes(total_bytes, num, contexts_bytes(num, 0))) for num in fewer)


def _capacity(num_verdicts: int, total_bytes: int, num_ahead: int) -> int:
    """So many verdicts at once that memory for timing can come late to each, if that is three or more; else so many as
    there is room for at all."""
    for capacity in range(num_verdicts, FEWEST_STAGED - 1, -1):
        timed = timed_parts(_num_timed(capacity), TIMED_INPUT_PARTS[0])
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


def _part_bytes(
    total_bytes: int, capacity: int, contexts: int, timed_parts: float = 0.0, num_furnished: int = 0
) -> int:
    free = total_bytes - JUDGE_BYTES - contexts
    parts = capacity * (NUM_PROCESSES * (1 + HEAP_PARTS) + JUDGE_PARTS) + (timed_parts or capacity)
    parts += num_furnished * AHEAD_PARTS
    return min(int(free / parts), total_bytes // (LARGEST_SHARE * capacity))
