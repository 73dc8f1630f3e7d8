"""Where the device time of a call went, and how much of it was the candidate's own kernels (`coverage`).

The records come from CUPTI inside the contestant, so they are a claim. Own kernels are told by identity, never by
name; and with its kernels silent a candidate still spends the time that everything else takes, which the judge's own
clock has measured (`timing.run`): coverage is cut to what vanished.
"""

from __future__ import annotations

import math
from typing import Any

from kerneldojo.devices.cuda import charges
from kerneldojo.devices.cuda.profiler import coverage
from kerneldojo.judging.rounds import Match
from kerneldojo.judging.verdict import Findings
from kerneldojo.schema import KernelTime

PROFILED_CALLS = 10
MAX_KERNELS = 64
LAUNCH_HOST_US = 15.0
"""Host time of a call of a module, and of each launch within it (Triton's launcher takes 8 to 15 us)."""
MAX_COUNTED_LAUNCHES = 30


Rows = list[dict[str, Any]]
"""Kernels with what they took: name, own, device_us and launches a call."""


def take(match: Match, findings: Findings) -> Rows:
    """Have a few calls profiled; the device should be the contestant's alone. Empty without usable records.

    Raises:
        Ruling: the contestant did not get through it.
    """
    sets = findings.timed_sets[:PROFILED_CALLS]
    answer = match.contestant.ask("platform", "profile", what="profile", instance="timed", sets=sets)
    return _checked(answer.get("kernels"))


def fill(rows: Rows, findings: Findings) -> None:
    """Fill in `kernels` and `coverage`; leaves them out, with a note, where there are no usable records."""
    if not rows:
        findings.notes.append("no usable profile: coverage is unknown")
        return
    findings.kernels = tuple(
        KernelTime(
            name=row["name"][:200],
            device_ms=row["device_us"] / 1000,
            num_launches=row["launches"],
            own=row["own"],
        )
        for row in rows[:MAX_KERNELS]
    )
    claimed = coverage(rows)
    if claimed is None:
        return
    full, silenced = findings.full_fit, findings.silenced_fit
    if full is not None and silenced is not None:
        error = math.hypot(*(fit.relative_error * fit.per_call_us for fit in (full, silenced)))
        other_us = max(0.0, silenced.per_call_us - host_floor_us(rows))
        claimed = charges.covered(claimed, full.per_call_us, other_us, error)
    findings.coverage = claimed


def host_floor_us(rows: list[dict[str, Any]]) -> float:
    """What a call without any device time would take for its launches: not to be mistaken for the work of others.

    The number of launches is a claim, so it is capped.
    """
    launches = sum(row["launches"] for row in rows)
    return LAUNCH_HOST_US * (1 + min(launches, MAX_COUNTED_LAUNCHES))


def _checked(rows: Any) -> list[dict[str, Any]]:
    """Rows that have the shape they should, or none at all."""
    if not isinstance(rows, list):
        return []
    kept: list[dict[str, Any]] = []
    for row in rows[:512]:
        try:
            name, own = str(row["name"]), bool(row["own"])
            device_us, launches = float(row["device_us"]), float(row["launches"])
        except (KeyError, TypeError, ValueError):
            return []
        if not (math.isfinite(device_us) and 0 <= device_us < 1e9 and 0 <= launches < 1e6):
            return []
        kept.append({"name": name, "own": own, "device_us": device_us, "launches": launches})
    return kept
