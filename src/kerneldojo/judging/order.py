"""The order in which an output lies in memory, and who pays for another than the reference's.

An answer is right whatever its strides. But an order of its own would save a candidate the work of bringing the answer
into the one that was asked for (all the work, where the problem is to transpose something), and leave it to whoever
uses it. So an output is read as it lies where that is as the reference's, or plain; one that lies otherwise, or has
gaps, is copied in each timed call, and the call is charged for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kerneldojo.devices.cuda.inputs import Layout, plain_stride
from kerneldojo.devices.work import Traffic, Work
from kerneldojo.judging.contestant import Answer

COPIED = "{which} does not lie as the reference's: its timed calls copy it into order, and pay for that"
UNNUMBERED = 1 << 61
"""Storages from here on are nobody's who counts."""


def orders(answer: Answer, theirs: Sequence[Layout]) -> list[Layout]:
    """How each output of an answer is read, the reference's lying like `theirs`."""
    mine = map(Layout.of, answer.outputs)
    return [
        replace(one, stride=other.stride if one.lies_as(other.stride) else plain_stride(one.shape))
        for one, other in zip(mine, theirs, strict=True)
    ]


def disorderly(answer: Answer, wanted: Sequence[Layout]) -> Iterator[int]:
    """Which outputs lie otherwise than they are read, as far as an answer says how they lie."""
    for number, (kind, layout) in enumerate(zip(answer.kinds, wanted, strict=True)):
        told = kind.get("stride")
        if isinstance(told, list) and not layout.lies_as(told):
            yield number


def notes(answer: Answer, wanted: Sequence[Layout]) -> list[str]:
    """What is said of these."""
    is_one = len(wanted) == 1
    return [COPIED.format(which="the output" if is_one else f"output {at}") for at in disorderly(answer, wanted)]


def copies(answer: Answer, wanted: Sequence[Layout]) -> list[Work]:
    """The work of copying these, as it is counted where a device is modelled."""
    return [_copy(wanted[number].num_bytes, number) for number in disorderly(answer, wanted)]


def _copy(num_bytes: int, number: int) -> Work:
    read, written = (Traffic(storage=UNNUMBERED + 2 * number + at, num_bytes=num_bytes) for at in (0, 1))
    return Work(
        own=False,
        name="copy into the reference's order",
        pattern="elementwise",
        reads=(read,),
        writes=(written,),
        accessed_bytes=2 * num_bytes,
    )
