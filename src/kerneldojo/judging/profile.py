"""Where the device time of a call went, and how much of it was the candidate's own kernels (`coverage`).

The records come from CUPTI inside the contestant, so they are a claim. Own kernels are told by identity, never by
name; and with its kernels silent a candidate still spends the time that everything else takes, which the judge's own
clock has measured (`timing.run`): coverage is cut to what vanished.

A kernel's duration is taken on the device, so a profile needs no window as long as no other process' turn falls into
one of its launches. That shows: such a launch takes a hundred microseconds longer than its like, and all of them
together longer than the judge's own clock found that a call takes. Then it is taken again, at last in a window.
"""

from __future__ import annotations

import math
from typing import Any

from kerneldojo.devices.cuda import charges
from kerneldojo.devices.cuda.fits import Fit
from kerneldojo.devices.cuda.profiler import coverage
from kerneldojo.judging.ends import readable
from kerneldojo.judging.rounds import Match
from kerneldojo.judging.verdict import MAX_KERNELS, MAX_NAME, Findings
from kerneldojo.schema import KernelTime

PROFILED_CALLS = 10
PROFILED_US = 50_000.0
"""For so long calls are profiled, and at least `FEWEST_PROFILED`: ten of a recurrent network with thousands of launches
took 15 s."""
FEWEST_PROFILED = 3
"""As many as it takes to see that one launch was interrupted."""
LAUNCH_HOST_US = 15.0
"""Host time of a call of a module, and of each launch within it (Triton's launcher takes 8 to 15 us)."""
MAX_COUNTED_LAUNCHES = 30
MOST_SLOWNESS = 2.5
"""Of the cores, as far as launches may take longer by it."""
NUM_BESIDE = 2
"""How often a profile is tried while others may use the device."""
MOST_BEYOND = 1.05
"""Device time over the judge's own time for a call from which others must have had turns in between. Kernels that run
at the same time have as much by themselves: they are profiled in a window, as all were once."""


Rows = list[dict[str, Any]]
"""Kernels with what they took: name, own, device_us and launches a call."""


def take(match: Match, findings: Findings, full: Fit | None) -> Rows:
    """Have a few calls profiled; the device should be the contestant's alone. Empty without usable records.

    Args:
        match, findings: whose, and where its timed inputs are.
        full: what the judge's clock said of its calls.

    Raises:
        Ruling: the contestant did not get through it.
    """
    return _checked(_ask(match, findings, full).get("kernels"))


def take_beside(match: Match, findings: Findings, full: Fit | None) -> Rows | None:
    """The same while others may use the device, after the judge's clock has spoken; None where that may have shown.

    Args:
        match, findings: as for `take`.
        full: what the clock said of its calls; without that nothing can be told.

    Raises:
        Ruling: as `take`.
    """
    for _ in range(NUM_BESIDE if full is not None else 0):
        assert full is not None
        answer = _ask(match, findings, full)
        rows = _checked(answer.get("kernels"))
        if not rows:
            return rows
        if answer.get("even") is True and fits_the_clock(rows, full):
            return rows
    return None


def fits_the_clock(rows: Rows, full: Fit) -> bool:
    """Whether kernels take no longer than the judge's clock found that a call takes."""
    return device_us(rows) <= MOST_BEYOND * full.per_call_us


def device_us(rows: Rows) -> float:
    """What the kernels of a call take, each by itself."""
    return sum(row["device_us"] for row in rows)


def num_calls(full: Fit | None) -> int:
    """How many calls are profiled, of which the judge's clock said `full`."""
    if full is None or full.per_call_us <= 0:
        return PROFILED_CALLS
    return max(FEWEST_PROFILED, min(PROFILED_CALLS, int(PROFILED_US / full.per_call_us)))


def _ask(match: Match, findings: Findings, full: Fit | None) -> dict[str, Any]:
    sets = findings.timed_sets[: num_calls(full)]
    return match.contestant.ask("platform", "profile", what="profile", instance="timed", sets=sets)


def fill(rows: Rows, findings: Findings) -> None:
    """Fill in `kernels`, `coverage` and whether launches are what was measured, once `findings.timing` is there.

    Without usable records all three are left out, with a note.
    """
    if not rows:
        findings.notes.append("no usable profile: coverage is unknown")
        return
    findings.kernels = tuple(
        KernelTime(
            name=row["name"],
            device_ms=row["device_us"] / 1000,
            num_launches=row["launches"],
            own=row["own"],
        )
        for row in rows[:MAX_KERNELS]
    )
    if findings.timing.median_ms:
        is_bound = charges.host_bound(device_us(rows), 1000 * findings.timing.median_ms)
        findings.timing = findings.timing.model_copy(update={"host_bound": is_bound})
    findings.coverage = allowed(rows, findings, findings.silenced_us)


def allowed(rows: Rows, findings: Findings, silenced_us: tuple[float, float] | None) -> float | None:
    """The coverage that a profile claims, cut to what vanishes with own kernels silent; None without one.

    Args:
        rows: the profile.
        findings: with what the clock said of a call.
        silenced_us: what one takes with own kernels silent, and how far that may be wrong; None if nobody knows.
    """
    claimed, full = coverage(rows), findings.full_fit
    if claimed is None or full is None or silenced_us is None:
        return claimed
    per_call_us, error_us = silenced_us
    error_us = math.hypot(full.relative_error * full.per_call_us, error_us)
    return charges.covered(
        claimed, full.per_call_us, max(0.0, per_call_us - host_floor_us(rows, findings.slowness)), error_us
    )


def host_floor_us(rows: Rows, slowness: float = 1.0) -> float:
    """What a call without any device time would take for its launches: not to be mistaken for the work of others.

    The number of launches is a claim, so it is capped; so is the slowness of the cores, which others can cause.
    """
    launches = sum(row["launches"] for row in rows)
    return LAUNCH_HOST_US * min(max(slowness, 1.0), MOST_SLOWNESS) * (1 + min(launches, MAX_COUNTED_LAUNCHES))


def _checked(rows: Any) -> list[dict[str, Any]]:
    """Rows that have the shape they should, or none at all."""
    if not isinstance(rows, list):
        return []
    kept: list[dict[str, Any]] = []
    for row in rows[:512]:
        try:
            name, own = readable(row["name"], MAX_NAME), bool(row["own"])
            device_us, launches = float(row["device_us"]), float(row["launches"])
        except (KeyError, TypeError, ValueError, OverflowError):
            return []
        if not (math.isfinite(device_us) and 0 <= device_us < 1e9 and 0 <= launches < 1e6):
            return []
        kept.append({"name": name, "own": own, "device_us": device_us, "launches": launches})
    return kept
