"""How a GPU's verdicts follow each other: what makes more of them fit into a minute, and changes nothing else.

Each setting can be turned off, so that old and new may be measured side by side (`benchmarks/throughput.py --pace`).
"""

from __future__ import annotations

from pydantic import Field

from kerneldojo.schema.base import Frozen


class Pace(Frozen):
    """The defaults are the vetted ones."""

    windows_in_a_row: int = Field(default=4, ge=1, le=64)
    """Windows of different verdicts for which all others are stopped but once, where so many are waited for
    (`judging.gate`). With 1 everybody goes on after each."""
    brisk_rounds: bool = True
    """Whether sides wake, and free their outputs, while the device writes the content of the next round of windows
    (`devices.cuda.trials`)."""
    recycle_memory: bool = True
    """Whether device memory that a hosted process leaves behind serves the next one, cleared, instead of being freed
    and allocated anew (`devices.cuda.spare`)."""
    profile_beside: bool = True
    """Whether the profile is taken while others may use the device, and again in a window of its own only where that
    shows (`judging.profile`)."""
