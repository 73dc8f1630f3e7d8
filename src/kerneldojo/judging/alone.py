"""What one verdict has that has all of a GPU, for its problem fits nowhere else.

No runner is kept, inputs have two parts (a slope needs two sets of them), and results stay in the heap, from which
the judge copies them, so that an exchange holds arguments alone. The audit comes first, when there is a reference
runner and no more, and the judge needs the answers to several draws at once. On 150 GB the largest tensor may have 8
GiB, where a share of one allows 4.2.

What does not fit even so has no third process beside the other two: a silent twin comes when the contestant is gone.
Where it is heaps that are too small, and inputs fit, the two have what that leaves: a convolution may return twice what
it is given, or its library want as much again on the way. Else parts are larger, and the reference runner has no more
than two answers need. Then the largest tensor may have 11 GiB on 150 GB, and 6 on 80: of KernelBench's elementwise
problems most have such of exactly 6.

Who reduces large inputs to small results needs next to no heap: then they may have 15 GiB, and 8. And where that is not
enough, and there is nothing but those inputs, 16 and 9, as KernelBench's largest has them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from kerneldojo.judging.shares import JUDGE_BYTES, Shares, contexts_bytes

INPUT_PARTS = 2.0
WHOLE_HEAP_PARTS = 2.9
WHOLE_JUDGE_PARTS = 3.1
"""Inputs, the reference's answer and the candidate's are the judge's."""
WHOLE_AUDIT_PARTS = (5.0, 9.5)
"""Of heap, and of the judge, in an audit: the answers to three draws are compared, and those of other modules."""
AUDIT_INPUT_PARTS = 1 / 64
"""Nothing is timed in one."""
WIDE_HEAP_PARTS = 4.0
WIDE_RUNNER_PARTS = 4.8
"""Two copies of the inputs, two answers, and what making one takes."""
WIDE_JUDGE_PARTS = 4.0
"""As results may be larger than inputs, room for one more: the answer in another precision. All of it together takes
what a twin leaves, where parts are as large as with one."""
WIDE_AUDIT_PARTS = (6.2, 9.5)
LONE_HEAP_PARTS = 3.1
"""A result that is held while the next is made, that one, and one on the way to it."""
LONE_RUNNER_PARTS = 2.3
"""It draws inputs, in two versions at most."""
LONE_AUDIT_PARTS = (3.1, 8.1)
SLIM_HEAP_PARTS = 0.6
SLIM_JUDGE_PARTS = 2.2
"""What was drawn, and what one timed call was given."""
SLIM_AUDIT_PARTS = (2.6, 5.0)
SPARSE_HEAP_PARTS = 0.25
SPARSE_RUNNER_PARTS = 2.1
SPARSE_JUDGE_PARTS = 2.1
"""The same with hardly anything for what is small."""
SPARSE_AUDIT_PARTS = (2.4, 5.0)


class Alone(NamedTuple):
    """What has all of a device."""

    verdict: Shares
    audit: Shares
    """Before it."""

    @classmethod
    def of(cls, total_bytes: int) -> tuple[Alone, ...]:
        """Divisions of a device for one verdict, in the order in which they are tried."""
        divisions = (
            (whole(total_bytes), WHOLE_AUDIT_PARTS),
            (wide(total_bytes), WIDE_AUDIT_PARTS),
            (lone(total_bytes), LONE_AUDIT_PARTS),
            (slim(total_bytes), SLIM_AUDIT_PARTS),
            (sparse(total_bytes), SPARSE_AUDIT_PARTS),
        )
        return tuple(cls(verdict, auditing(verdict, *parts)) for verdict, parts in divisions)


def whole(total_bytes: int) -> Shares:
    """For a problem that needs more than its share."""
    return _filling(
        total_bytes,
        Shares(
            capacity=1,
            num_kept=0,
            part_bytes=1,
            heap_parts=WHOLE_HEAP_PARTS,
            input_parts=INPUT_PARTS,
            judge_parts=WHOLE_JUDGE_PARTS,
            in_place=True,
        ),
    )


def wide(total_bytes: int) -> Shares:
    """For one whose calls need more, and whose inputs do not: without a twin beside."""
    return replace(
        whole(total_bytes),
        heap_parts=WIDE_HEAP_PARTS,
        runner_heap_parts=WIDE_RUNNER_PARTS,
        judge_parts=WIDE_JUDGE_PARTS,
        num_processes=2,
    )


def lone(total_bytes: int) -> Shares:
    """For one that needs even more: without a twin beside, and with larger parts."""
    return _filling(
        total_bytes,
        replace(whole(total_bytes), heap_parts=LONE_HEAP_PARTS, runner_heap_parts=LONE_RUNNER_PARTS, num_processes=2),
    )


def slim(total_bytes: int) -> Shares:
    """For one that needs even more, and returns little."""
    return _filling(total_bytes, replace(lone(total_bytes), heap_parts=SLIM_HEAP_PARTS, judge_parts=SLIM_JUDGE_PARTS))


def sparse(total_bytes: int) -> Shares:
    """For one that needs more still, and returns next to nothing."""
    return _filling(
        total_bytes,
        replace(
            slim(total_bytes),
            heap_parts=SPARSE_HEAP_PARTS,
            runner_heap_parts=SPARSE_RUNNER_PARTS,
            judge_parts=SPARSE_JUDGE_PARTS,
        ),
    )


def auditing(verdict: Shares, heap_parts: float, judge_parts: float) -> Shares:
    """For the audit of a problem that is then judged with `verdict`: parts are of the same size."""
    return replace(
        verdict,
        heap_parts=heap_parts,
        runner_heap_parts=None,
        input_parts=AUDIT_INPUT_PARTS,
        judge_parts=judge_parts,
        num_processes=1,
    )


def _filling(total_bytes: int, shares: Shares) -> Shares:
    """With parts so large that they take all there is."""
    free = total_bytes - JUDGE_BYTES - contexts_bytes(1, 0)
    return replace(shares, part_bytes=max(int(free / shares.num_parts), 1 << 21))
