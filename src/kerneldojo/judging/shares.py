"""How a GPU's memory is divided: among verdicts under way, reference runners that wait for the next, and the judge.

Everything is counted in *parts* of one size. Timed inputs lie in one part that reference runner, contestant and silent
twin map alike; each process has an exchange of one part and a heap of two for its tensors. The judge needs about two
parts a verdict for the copies that it compares. Contexts take memory of their own, whatever they do.
"""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True)
class Shares:
    """One device's division."""

    capacity: int
    """Verdicts at once."""
    num_kept: int
    """Reference runners that are kept alive for the next verdict on their problem, beside those in use."""
    part_bytes: int

    @property
    def exchange_bytes(self) -> int:
        """For arguments and packed results of one hosted process."""
        return self.part_bytes

    @property
    def heap_bytes(self) -> int:
        """For all tensors of one hosted process."""
        return HEAP_PARTS * self.part_bytes

    @property
    def inputs_bytes(self) -> int:
        """For the inputs of timed calls."""
        return self.part_bytes

    @property
    def judge_bytes(self) -> int:
        """For the judge itself, all verdicts together."""
        return JUDGE_BYTES // 2 + self.capacity * JUDGE_PARTS * self.part_bytes

    @property
    def most_bytes(self) -> int:
        """What all of it takes at most."""
        parts = self.capacity * VERDICT_PARTS + self.num_kept * RUNNER_PARTS
        return JUDGE_BYTES + parts * self.part_bytes + num_contexts(self.capacity, self.num_kept) * CONTEXT_BYTES

    @classmethod
    def of(cls, num_verdicts: int, total_bytes: int) -> Shares:
        """Divide a device of `total_bytes`: fewer verdicts than asked for where they would not fit.

        Kept runners get what leaves the parts of the others large: one where one verdict is judged at a time, so that
        large problems fit as they did without; two more for each further verdict, at most `MAX_KEPT`; none where there
        is hardly room for the verdicts.
        """
        capacity = max(1, num_verdicts)
        while capacity > 1 and _part_bytes(capacity, 0, total_bytes) < LEAST_PART_BYTES:
            capacity -= 1
        num_kept = min(2 * capacity - 1, MAX_KEPT)
        while num_kept and _part_bytes(capacity, num_kept, total_bytes) < 2 * LEAST_PART_BYTES:
            num_kept -= 1
        return cls(capacity, num_kept, max(_part_bytes(capacity, num_kept, total_bytes), 1 << 21))


def num_contexts(capacity: int, num_kept: int) -> int:
    """Contexts that may exist at once, the judge's own not counted."""
    return 3 * capacity + num_kept


def _part_bytes(capacity: int, num_kept: int, total_bytes: int) -> int:
    free = total_bytes - JUDGE_BYTES - num_contexts(capacity, num_kept) * CONTEXT_BYTES
    parts = capacity * VERDICT_PARTS + num_kept * RUNNER_PARTS
    return min(free // parts, total_bytes // (LARGEST_SHARE * capacity))
