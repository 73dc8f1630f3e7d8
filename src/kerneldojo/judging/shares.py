"""How a GPU's memory is divided: among verdicts under way, contexts that wait for the next, and the judge.

Everything is counted in *parts* of one size. Timed inputs lie in one part that reference runner, contestant and silent
twin map alike; each process has an exchange of one part and a heap of two for its tensors. The judge needs about two
parts a verdict for the copies that it compares. Contexts take memory of their own, whatever they do; runners that wait,
and processes that were opened ahead, have no other.

A problem that does not fit is judged alone, with all of the device and another division: no runner is kept, inputs have
two parts (a slope needs two sets of them), and results stay in the heap, from which the judge copies them, so that an
exchange holds arguments alone. Its audit comes first, when there is a reference runner and no more, and the judge needs
the answers to several draws at once. On 150 GB the largest tensor may have 8 GiB, where a share of one allows 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

CONTEXT_BYTES = 704 << 20
"""Device memory of one process' context with what torch and Triton load into it (an upper estimate; 0.68 GiB seen)."""
JUDGE_BYTES = 2 << 30
"""The judge's own context, its flushing buffer, and what its allocator keeps."""
HEAP_PARTS = 2
RUNNER_PARTS = 1 + HEAP_PARTS + 1
"""Exchange, heap, and the timed inputs, which are its own."""
JUDGE_PARTS = 2
"""The judge's copies, for each verdict."""
VERDICT_PARTS = RUNNER_PARTS + 2 * (1 + HEAP_PARTS) + JUDGE_PARTS
"""Runner, contestant and twin, and the judge's copies."""
LARGEST_SHARE = 16
"""A part is at most this fraction of the device."""
LEAST_PART_BYTES = 256 << 20
"""With less than this, problems of ordinary size do not fit: then fewer verdicts are let in, or fewer runners kept."""
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
    num_processes: int = 3
    """Of each verdict: reference runner, contestant and twin."""
    num_ahead: int = 0
    """Processes that have opened the device before anybody asks for them; contexts and no more."""
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
    def inputs_bytes(self) -> int:
        """For the inputs of timed calls."""
        return int(self.input_parts * self.part_bytes)

    @property
    def judge_bytes(self) -> int:
        """For the judge itself, all verdicts together."""
        return JUDGE_BYTES // 2 + int(self.capacity * self.judge_parts * self.part_bytes)

    @property
    def most_bytes(self) -> int:
        """What all of it takes at most."""
        process = 1 + self.heap_parts
        parts = self.capacity * (self.num_processes * process + self.input_parts + self.judge_parts)
        contexts = num_contexts(self.capacity, self.num_kept, self.num_ahead)
        return JUDGE_BYTES + int(parts * self.part_bytes) + contexts * CONTEXT_BYTES

    @classmethod
    def of(cls, num_verdicts: int, total_bytes: int, num_ahead: int = 0) -> Shares:
        """Divide a device of `total_bytes`: fewer verdicts than asked for where they would not fit.

        Contexts are made ahead, `num_ahead` of them, only where there are several verdicts at once.

        Kept runners get what leaves the parts of the others large: one where one verdict is judged at a time, so that
        large problems fit as they did without; two more for each further verdict, at most `MAX_KEPT`; none where there
        is hardly room for the verdicts.
        """
        capacity = max(1, num_verdicts)
        while capacity > 1 and _part_bytes(capacity, 0, num_ahead, total_bytes) < LEAST_PART_BYTES:
            capacity -= 1
        num_ahead = num_ahead if capacity > 1 else 0
        num_kept = min(2 * capacity - 1, MAX_KEPT)
        while num_kept and _part_bytes(capacity, num_kept, num_ahead, total_bytes) < 2 * LEAST_PART_BYTES:
            num_kept -= 1
        part_bytes = max(_part_bytes(capacity, num_kept, num_ahead, total_bytes), 1 << 21)
        if capacity == 1:  # Or a problem that has to be judged alone would have smaller parts than the others.
            part_bytes = min(part_bytes, cls.whole(total_bytes).part_bytes)
        return cls(capacity, num_kept, part_bytes, num_ahead=num_ahead)

    @classmethod
    def whole(cls, total_bytes: int) -> Shares:
        """All of a device for one verdict, on a problem that needs more than its share."""
        free = total_bytes - JUDGE_BYTES - num_contexts(1, 0) * CONTEXT_BYTES
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


def num_contexts(capacity: int, num_kept: int, num_ahead: int = 0) -> int:
    """Contexts that may exist at once, the judge's own not counted."""
    return 3 * capacity + num_kept + num_ahead


def _part_bytes(capacity: int, num_kept: int, num_ahead: int, total_bytes: int) -> int:
    free = total_bytes - JUDGE_BYTES - num_contexts(capacity, num_kept, num_ahead) * CONTEXT_BYTES
    return min(free // (capacity * VERDICT_PARTS), total_bytes // (LARGEST_SHARE * capacity))
