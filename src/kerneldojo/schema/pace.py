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
    contexts_ahead: int = Field(default=6, ge=0, le=32)
    """Processes that have opened the device before anybody asks for them, where several verdicts are judged at once
    (`judging.blanks`). They are made while others are timed, and have a contestant's memory where there is room. With
    0 contexts are made when they are needed, and apart from windows."""
    larger_shares: bool = True
    """Whether problems that need more than a share are judged beside each other, half as many at once with twice as
    much and more for each, as long as that is enough, and alone only then (`judging.division`)."""
    builds_ahead: bool = True
    """Whether all that can be done without the device is done before a verdict has a place at it (`judging.ahead`): a
    source is imported, a Triton kernel read by Triton's front end, an extension compiled. What fails there costs no
    context."""


ONE_AT_A_TIME = Pace(
    windows_in_a_row=1,
    brisk_rounds=False,
    recycle_memory=False,
    profile_beside=False,
    contexts_ahead=0,
    larger_shares=False,
    builds_ahead=False,
)
