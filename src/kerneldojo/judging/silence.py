"""What a candidate does without its own kernels, asked in the process that was timed, when all else is known of it.

Its kernels become no-ops there for good. If its answer is wrong then, they cause it; if it is right, that may be a
graph that keeps what it captured, and a silent twin is asked (`cause`). And what a call takes then is what everything
else takes, which bounds its coverage (`profile`). It is nearly always next to nothing, and can be seen to be beside
others; only where it is not is it timed with the device idle.

A twin costs a context, which a GPU cannot make many of. What can be done against it can be done here, too: launch a
kernel, see whether it does anything, and break on purpose. But here there is one thing more to see: the silencing. So
a source that has a word for looking at that has a twin from the beginning, and so have some that are drawn by lot. Nor
may it be known which question is the last: who breaks at the ninth instance, say, would seem to depend on its kernels.
So some rounds come first, nobody knows how many, in which its kernels are what they were and it has to be right.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Generator
from functools import partial
from typing import Any

from kerneldojo.devices.cuda import bursts, trials
from kerneldojo.devices.cuda import page as pages
from kerneldojo.devices.cuda.window import Side
from kerneldojo.judging import profile
from kerneldojo.judging.cause import is_right_without
from kerneldojo.judging.contestant import Contestant
from kerneldojo.judging.ends import HostedEnd
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.preparation import Prepared
from kerneldojo.judging.rounds import Match
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.sides import SideEnded, post, side
from kerneldojo.judging.twin import TWIN_SECONDS
from kerneldojo.judging.verdict import Findings

NAPS_SECONDS = (50e-6, 2e-3)
"""Between looks at a page while others may be timed, at first and later on: who looks without a pause has the
interpreter, which whoever reads a clock then needs."""
MOST_CONTROLS = 3
"""Rounds before a candidate is silenced where it was timed, at most; none to so many, equally likely."""
LATE_SECONDS = 5.0
"""For a window without own kernels."""
WATCHES = (
    *("kerneldojo", "sys.modules", "_getframe", "f_back", "import inspect", "import traceback", "import gc", "ctypes"),
    *("settrace", "setprofile", "sys.monitoring", "__import__", "importlib", "exec(", "eval(", "compile(", "base64"),
    *("pickle", "marshal", "getattr", "setattr", "attrgetter", "methodcaller", "vars(", "dir(", "globals(", "locals("),
    *("__dict__", "__class__", "__getattribute__", "__subclasses__", "__globals__", "builtins", "/proc", "_hook"),
    *(".function", "CompiledKernel", "_init_handles", "device_caches", "knobs", "launch_metadata", "load_binary"),
    *("triton.compiler", "triton.runtime", "triton.backends", "import compiler", "import runtime", "import backends"),
)
"""Words of sources that may look at, or reach into, what silences them. Who hides them is left to the lot."""


def is_mute_in_place(match: Match, timeout: float) -> bool:
    """Silence the contestant, and see whether its answer is wrong without its kernels; False where nothing is proven.

    Args:
        match: with a contestant that is asked nothing else afterwards.
        timeout: seconds for its call.

    Raises:
        Ruling: it was wrong in a round before.
    """
    party, enough = match.contestant, timeout + TWIN_SECONDS
    for number in range(secrets.randbelow(MOST_CONTROLS + 1)):
        party.hosted.extend(max(0.0, enough - party.hosted.remaining))
        match.play_round(number, repeat=False)
    # Of its own time there may be none left: then it would seem to hang.
    party.hosted.extend(max(0.0, enough - party.hosted.remaining))
    try:
        if not party.hush():
            return False
    except Ruling:  # It broke before it was asked anything.
        return False
    return not is_right_without(match, timeout, is_silent=True)


def bound_coverage(
    bench: Any, guest: Guest, prepared: Prepared, silent: Contestant, rows: profile.Rows, findings: Findings
) -> None:
    """Cut the coverage that a profile claims to what the judge's clock allows; not if the candidate breaks.

    Args:
        bench, guest: where, and whose.
        prepared: what was timed.
        silent: who is silent, and was asked for `cause`, which is the instance that is called.
        rows: the profile.
        findings: to be filled in.
    """
    mine = side("silent", silent.hosted, prepared.layouts)
    longest = max(1, min(prepared.inputs.count, pages.MAX_CALLS, trials.room(mine)))

    def is_enough(per_call_us: float) -> bool:
        return profile.allowed(rows, findings, (per_call_us, 0.0)) == findings.coverage

    def measure() -> None:
        with _serving(bench, silent, mine):
            spin = partial(_spin, mine)
            findings.silenced_us = bursts.quickest_us(mine.arena.page, longest, spin, bench.stopwatch.flush)

    with contextlib.suppress(Ruling, HostedEnd, SideEnded, pages.Late):  # How it broke without them does not matter.
        with _serving(bench, silent, mine):
            if bursts.is_little(mine.arena.page, longest, lambda: _nap(guest, mine), is_enough):
                return
        bench.measure_alone(guest, findings, measure, [silent.hosted.session])
    findings.coverage = profile.allowed(rows, findings, findings.silenced_us)


@contextlib.contextmanager
def _serving(bench: Any, silent: Contestant, mine: Side) -> Generator[None]:
    """A series of windows, ended afterwards."""
    post(silent.hosted, "cause")
    try:
        yield
    finally:
        bench.stopwatch.end(mine)
        silent.hosted.collect(LATE_SECONDS)


def _spin(mine: Side) -> None:
    """Wait for a window that nobody is beside."""
    mine.arena.page.wait_done(time.monotonic() + LATE_SECONDS, mine.check)


def _nap(guest: Guest, mine: Side) -> None:
    """Wait for a window beside others, at whose windows it stands still."""
    page = mine.arena.page
    first, later = NAPS_SECONDS

    def is_done(seconds: float) -> bool:
        start, mark = time.monotonic(), time.monotonic() + later
        while not page.is_done:
            if time.monotonic() - start > seconds:
                mine.check()
                return False
            time.sleep(first if time.monotonic() < mark else later)
        return True

    if not guest.wait(is_done, LATE_SECONDS) and not page.is_done:
        raise pages.Late("a window did not end in time")
