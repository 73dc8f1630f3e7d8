"""Placebos: calls in which a candidate's own kernels are no-ops, among calls in which they are what they were.

Which is which is drawn in secret, and nothing that a call can see without trying a kernel tells them apart. Who depends
on its kernels is wrong in every placebo and right in all others. Who does not, and would break on purpose to look as if
it did, has to guess, and is right about one time in 250. No figure comes of it, so others may use the device meanwhile.

The calls are windows of the instance that was timed, on inputs that nobody has seen, or on those of its last windows
where there is no memory to make others of; what they do not write is NaN. Whoever knows its answers by heart is right
in all. Their outputs are looked at as those of timed calls are: sampled in places that are drawn afterwards, against
what the reference returns.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import torch

from kerneldojo.devices.cuda import page as pages
from kerneldojo.devices.cuda import trials
from kerneldojo.devices.cuda.draws import Integers
from kerneldojo.devices.cuda.sampling import draw_plan
from kerneldojo.devices.cuda.window import Side, Stopwatch
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.inspection import agree
from kerneldojo.judging.preparation import Prepared
from kerneldojo.judging.rounds import Match
from kerneldojo.judging.sides import nap, post, post_reference, serving, side
from kerneldojo.judging.verdict import Findings

NUM_CALLS = 8
"""Placebos and others together."""
MOST_CALL_US = 100_000.0
"""Of either side: who is slower has a twin, which costs a context and calls each side but once."""


def draw() -> list[bool]:
    """Which calls are placebos: some are, and some are not."""
    drawn = 1 + secrets.randbelow(2**NUM_CALLS - 2)
    return [bool(drawn >> call & 1) for call in range(NUM_CALLS)]


def are_quick(prepared: Prepared) -> bool:
    """Whether so many calls are worth saving a context, by the windows in which both sides were timed."""
    assert prepared.result is not None
    timed = (prepared.result.series[name].windows for name in ("contestant", "reference"))
    return all(min((one.wall_us / one.length for one in windows), default=0.0) < MOST_CALL_US for windows in timed)


def play(
    stopwatch: Stopwatch,
    guest: Guest,
    match: Match,
    prepared: Prepared,
    findings: Findings,
    placebos: Sequence[bool],
) -> list[bool] | None:
    """Which calls are right; None if that cannot be seen: a call failed, or outputs are not where they should be.

    Args:
        stopwatch: of the device.
        guest: whose they are; it stands still in others' windows.
        match: reference and contestant, which is armed.
        prepared: what was timed.
        findings: how it was.
        placebos: which of the calls are some.

    Raises:
        HostedEnd: a process ended, or did not end its series.
        page.Late: a call did not end in time.
        SideEnded: a process ended in a call.
    """
    mine = side("contestant", match.contestant.hosted, prepared.layouts)
    theirs = side("reference", match.reference.hosted, prepared.outputs)
    most = min(prepared.inputs.count, pages.MAX_PLACEBOS, trials.room(mine), trials.room(theirs))
    found: list[bool] = []
    with (
        serving(stopwatch, theirs, match.reference.hosted, lambda: post_reference(match.reference, findings)),
        serving(stopwatch, mine, match.contestant.hosted, lambda: post(match.contestant.hosted)),
    ):
        for start in range(0, len(placebos), most):
            for one in (mine, theirs) if start else ():
                one.arena.page.go(0, pages.RELEASE)
                nap(guest, one)
            some = placebos[start : start + most]
            if prepared.inputs.can_refresh:
                prepared.inputs.refresh(len(some))
                torch.cuda.synchronize()
            # Who is late is killed: not a reference for being slow beside others.
            right = _called(guest, theirs, len(some), match.reference.hosted.remaining)
            mine.arena.page.put_placebos(some)
            patience = findings.protocol.cause_timeout
            answers = _called(guest, mine, len(some), patience, pages.PLACEBOS | pages.POISONED)
            if right is None or answers is None:
                return None
            found += _compared(mine, answers, theirs, right)
    return found


def _called(guest: Guest, one: Side, length: int, patience: float, flags: int = 0) -> Integers | None:
    """Have a side make calls; where their outputs lie, or None if that cannot be."""
    page = one.arena.page
    page.put_last(0, page.last(0))  # The inputs are as they should be.
    page.go(length, flags)
    nap(guest, one, patience)
    offsets = one.told(length)
    return offsets if page.state == pages.OK and one.holds(offsets) else None


def _compared(mine: Side, answers: Integers, theirs: Side, right: Integers) -> list[bool]:
    """For each call, whether what is sampled of all its outputs is what the reference has there."""
    plan = draw_plan(len(answers), mine.layouts)
    sample = mine.sampled(answers, plan)
    # Where they lie alike one look at each side is enough: others use the device, and keep whoever asks waiting.
    expected = theirs.sampled(right, plan) if theirs.layouts == mine.layouts else None

    def is_right(call: int, number: int) -> bool:
        if expected is not None:
            return agree(sample.read(number, call), expected.read(number, call))
        indices, values = sample.values(call, number)
        whole = theirs.output(right, call, number).reshape(-1)
        return agree(values, whole[indices.to(whole.device)].to(values.device))

    return [
        all(is_right(call, number) for number in range(len(mine.layouts)) if sample.has(call, number))
        for call in range(len(answers))
    ]
