"""The sides of a timed race: which process, which of its instances, and where each call's inputs lie.

And the same where nobody is timed: a series that is served beside others is waited for in naps.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator
from typing import Any

import torch

from kerneldojo.contestant import tree
from kerneldojo.contestant.arena import Slot
from kerneldojo.devices.cuda import page as pages
from kerneldojo.devices.cuda.inputs import InputSets, Layout
from kerneldojo.devices.cuda.window import Side, Stopwatch
from kerneldojo.judging.ends import Died, HostedEnd, Late
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.hosted import Hosted
from kerneldojo.judging.reference import Reference
from kerneldojo.judging.verdict import Findings

NAPS_SECONDS = (50e-6, 2e-3)
"""Between looks at a page while others may be timed, at first and later on: who looks without a pause has the
interpreter, which whoever reads a clock then needs."""
LATE_SECONDS = 5.0
"""For a window beside others, and for the end of a series."""


class SideEnded(Exception):
    """A side's process ended, or did not answer, while its calls were timed."""

    def __init__(self, side: str, end: HostedEnd) -> None:
        super().__init__(side)
        self.side, self.end = side, end


class ArgumentSets:
    """The argument trees of timed calls, for each side: those that map the inputs at one place have them in common.

    Args:
        values: the structure of a set of inputs; its tensors have no content.
        inputs: where they lie.
    """

    def __init__(self, values: Any, inputs: InputSets) -> None:
        self.values, self._inputs = values, inputs
        self._made: dict[int, list[tree.Node]] = {}

    def of(self, hosted: Hosted) -> list[tree.Node]:
        """A side's, one a call."""
        base = hosted.arena.base(hosted.arena.inputs)
        if base not in self._made:
            self._made[base] = _nodes(base, self.values, self._inputs)
        return self._made[base]


def _nodes(base: int, values: Any, inputs: InputSets) -> list[tree.Node]:
    """Argument trees, one a call, whose tensors lie in the shared inputs, which begin at `base`."""

    def node(index: int) -> tree.Node:
        numbers = iter(range(len(inputs.layouts)))

        def place(_: torch.Tensor) -> Slot:
            number = next(numbers)
            layout = inputs.layouts[number]
            return Slot(
                offset=base + inputs.offset(index, number),
                shape=list(layout.shape),
                stride=list(layout.stride),
                dtype=str(layout.dtype).removeprefix("torch."),
            )

        return tree.encode(values, place)

    return [node(index) for index in range(inputs.count)]


def side(name: str, hosted: Hosted, layouts: list[Layout]) -> Side:
    """A hosted process as the stopwatch sees it; `check` raises `SideEnded`.

    Whatever the candidate does counts against its time, also while it is timed: all others stand still meanwhile. The
    reference's waits for it, which are not its own.
    """

    def check() -> None:
        if hosted.session.has_ended():
            raise SideEnded(name, Died(hosted.session.ended or {}))
        if name != "reference" and hosted.remaining <= 0:
            raise SideEnded(name, Late("timed calls"))

    return Side(name, hosted.arena, tuple(layouts), check)


def compile_baseline(reference: Reference, sets: list[tree.Node], findings: Findings) -> None:
    """Have `torch.compile` make its version of the reference's timed instance, where that is the baseline."""
    if findings.protocol.baseline == "compile":
        tf32 = findings.precision_class == "tf32"
        try:
            reference.hosted.ask("platform", what="baseline", instance="timed", sets=sets[:1], tf32=tf32)
        except HostedEnd as end:
            raise reference.fault(end, "torch.compile") from None


def post(hosted: Hosted, instance: str = "timed") -> None:
    """Start a contestant's series."""
    hosted.post("platform", what="windows", instance=instance)


def post_reference(reference: Reference, findings: Findings) -> None:
    """Start the reference's series: as written, or as `torch.compile` made it, in the candidate's arithmetic."""
    instance = "baseline" if findings.protocol.baseline == "compile" else "timed"
    tf32 = findings.precision_class == "tf32"
    reference.hosted.post("platform", what="windows", instance=instance, tf32=tf32)


@contextlib.contextmanager
def serving(stopwatch: Stopwatch, one: Side, hosted: Hosted, begin: Callable[[], None]) -> Generator[None]:
    """A side's series of windows, which `begin` starts, ended afterwards.

    Raises:
        HostedEnd: it cannot be started or ended, or failed.
    """
    begin()
    try:
        yield
    finally:
        stopwatch.end(one)
        hosted.collect(LATE_SECONDS)


def nap(guest: Guest, one: Side, patience: float = LATE_SECONDS) -> None:
    """Wait for what a side was told last, beside others, in whose windows it stands still.

    Args:
        guest: whose it is.
        one: the side.
        patience: seconds, those in which it stands still not counted.

    Raises:
        page.Late: it does not end in time.
        SideEnded: its process did.
    """
    page = one.arena.page
    first, later = NAPS_SECONDS

    def is_done(seconds: float) -> bool:
        start, mark = time.monotonic(), time.monotonic() + later
        while not page.is_done:
            if time.monotonic() - start > seconds:
                one.check()
                return False
            time.sleep(first if time.monotonic() < mark else later)
        return True

    if not guest.wait(is_done, patience) and not page.is_done:
        raise pages.Late("a window did not end in time")
