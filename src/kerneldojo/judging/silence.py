"""What a candidate does without its own kernels, asked in the process that was timed, when all else is known of it.

It is armed there: each of its calls can have its kernels, or no-ops in their place. If it is wrong in the calls that
have none, and right in those that have them, its kernels cause its answer (`placebos`). All else proves nothing, for a
graph keeps what it captured, and a silent twin is asked (`cause`). And what a call takes without its kernels is what
everything else takes, which bounds its coverage (`profile`). It is nearly always next to nothing, and can be seen to be
beside others; only where it is not is it timed with the device idle.

A twin costs a context, which a GPU cannot make many of. What can be done against it can be done here, too: launch a
kernel, see whether it does anything, and break on purpose. But here there is one thing more to see: the silencing. So
a source that has a word for looking at that has a twin from the beginning, and so have some that are drawn by lot.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
from functools import partial
from typing import Any

from kerneldojo.devices.cuda import bursts, trials
from kerneldojo.devices.cuda import page as pages
from kerneldojo.devices.cuda.window import Side
from kerneldojo.judging import placebos, profile
from kerneldojo.judging.contestant import Contestant
from kerneldojo.judging.ends import HostedEnd
from kerneldojo.judging.guest import Guest
from kerneldojo.judging.preparation import Prepared
from kerneldojo.judging.rounds import Match
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.sides import LATE_SECONDS, SideEnded, nap, post, serving, side
from kerneldojo.judging.twin import TWIN_SECONDS
from kerneldojo.judging.verdict import Findings

WATCHES = (
    *("kerneldojo", "sys.modules", "_getframe", "f_back", "import inspect", "import traceback", "import gc", "ctypes"),
    *("settrace", "setprofile", "sys.monitoring", "__import__", "importlib", "exec(", "eval(", "compile(", "base64"),
    *("pickle", "marshal", "getattr", "setattr", "attrgetter", "methodcaller", "vars(", "dir(", "globals(", "locals("),
    *("__dict__", "__class__", "__getattribute__", "__subclasses__", "__globals__", "builtins", "/proc", "_hook"),
    *(".function", "CompiledKernel", "_init_handles", "device_caches", "knobs", "launch_metadata", "load_binary"),
    *("triton.compiler", "triton.runtime", "triton.backends", "import compiler", "import runtime", "import backends"),
)
"""Words of sources that may look at, or reach into, what silences them. Who hides them is left to the lot."""
WATCHING_NAMES = frozenset(
    (
        *("sys", "_sys", "modules", "os", "_os", "io", "open", "Path", "pathlib", "mmap", "signal", "subprocess"),
        *("_current_frames", "tb_frame", "gi_frame", "cr_frame"),
        *("f_globals", "f_locals", "f_builtins", "__traceback__"),
        *("threading", "_thread", "operator", "mro", "__mro__", "codecs", "decode", "fromhex", "chr"),
    )
)
"""Names that lead to modules, frames or files, or make words of what is none, wherever they stand in a source: a module
is had by `from sys import modules` as well, and its name from two halves."""
BROKEN = (Ruling, HostedEnd, SideEnded, pages.Late)
"""Ends of who is asked without its kernels. How it broke does not matter."""


def may_watch(source: str) -> bool:
    """Whether a source has a word for looking at what silences it; a twin is all that it costs to have one honestly."""
    names = re.findall(r"[A-Za-z_]\w*", source)
    return any(word in source for word in WATCHES) or not WATCHING_NAMES.isdisjoint(names)


def is_mute_in_place(bench: Any, guest: Guest, match: Match, prepared: Prepared, findings: Findings) -> bool:
    """Whether the contestant is wrong where its kernels are no-ops, and only there; False where nothing is proven.

    Args:
        bench, guest: where, and whose.
        match: with a contestant that has been timed.
        prepared: what was.
        findings: how.
    """
    if prepared.reference_changes_inputs or not placebos.are_quick(prepared):
        return False  # Both sides would need the inputs as they were; and slow calls are dearer than a twin.
    if not prepared.inputs.can_refresh and prepared.layouts != prepared.outputs:
        return False  # There is no room to look at whole outputs, as has to be done where they do not lie alike.
    party = match.contestant
    # Of its own time there may be none left: then it would seem to hang.
    party.hosted.extend(max(0.0, findings.protocol.cause_timeout + TWIN_SECONDS - party.hosted.remaining))
    drawn = placebos.draw()
    try:
        if not party.arm():
            return False
        right = placebos.play(bench.stopwatch, guest, match, prepared, findings, drawn)
    except BROKEN:
        return False
    return right == [not is_placebo for is_placebo in drawn]


def bound_coverage(
    bench: Any, guest: Guest, prepared: Prepared, silent: Contestant, rows: profile.Rows, findings: Findings
) -> None:
    """Cut the coverage that a profile claims to what the judge's clock allows; not if the candidate breaks.

    Args:
        bench, guest: where, and whose.
        prepared: what was timed.
        silent: who was timed, and is armed; or a twin, that is silent in any case and was asked for `cause`.
        rows: the profile.
        findings: to be filled in.
    """
    is_twin = silent.hosted is not prepared.hosted["contestant"]
    begin = partial(post, silent.hosted, "cause" if is_twin else "timed")
    mine = side("silent", silent.hosted, prepared.layouts)
    longest = max(1, min(prepared.inputs.count, pages.MAX_PLACEBOS, trials.room(mine)))
    mine.arena.page.put_placebos([True] * longest)

    def is_enough(per_call_us: float) -> bool:
        return profile.allowed(rows, findings, (per_call_us, 0.0)) == findings.coverage

    def measure() -> None:
        with serving(bench.stopwatch, mine, silent.hosted, begin):
            page, flush = mine.arena.page, bench.stopwatch.flush
            findings.silenced_us = bursts.quickest_us(page, longest, lambda: _spin(mine), flush, pages.PLACEBOS)

    known = findings.full_fit
    num_calls = bursts.num_calls(longest, known.per_call_us if known is not None else math.inf)
    with contextlib.suppress(*BROKEN):
        with serving(bench.stopwatch, mine, silent.hosted, begin):
            if bursts.is_little(mine.arena.page, num_calls, lambda: nap(guest, mine), is_enough, pages.PLACEBOS):
                return
        bench.measure_alone(guest, findings, measure, [silent.hosted.session])
    findings.coverage = profile.allowed(rows, findings, findings.silenced_us)


def _spin(mine: Side) -> None:
    """Wait for a window that nobody is beside."""
    mine.arena.page.wait_done(time.monotonic() + LATE_SECONDS, mine.check)
