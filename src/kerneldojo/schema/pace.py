"""How a GPU's verdicts follow each other: what makes more of them fit into a minute, and changes nothing else.

All of it on made 138 verdicts a minute of 122 on one H200, by turns (`benchmarks/throughput.py --pace new old`). All
attacks of the suite have met it there.
"""

from __future__ import annotations

from pydantic import Field

from kerneldojo.schema.base import Frozen


class Pace(Frozen):
    """The defaults are the vetted ones; `ONE_AT_A_TIME` does without any of it."""

    windows_in_a_row: int = Field(default=4, ge=1, le=64)
    """Windows of different verdicts for which all others are stopped but once, where so many are waited for
    (`judging.gate`). With 1 everybody goes on after each."""
    brisk_rounds: bool = True
    """Whether sides wake, and free their outputs, while the device writes the content of the next round of windows
    (`devices.cuda.window_rounds`)."""
    recycle_memory: bool = True
    """Whether device memory that a hosted process leaves behind serves the next one, cleared, instead of being freed
    and allocated anew (`devices.cuda.spare`)."""
    profile_beside: bool = True
    """Whether the profile is taken while others may use the device, and again in a window of its own only where that
    shows (`judging.profile`)."""
    contexts_beside: bool = False
    """Whether a process in which nothing of a candidate has run may make its context, and one that was killed lose it,
    while another verdict is timed. A contestant then makes its context before its source is imported, so that a source
    that does not import costs one. It gained 6 % on one H200 (`docs/throughput.md`), which is too little for that."""


ONE_AT_A_TIME = Pace(windows_in_a_row=1, brisk_rounds=False, recycle_memory=False, profile_beside=False)
