"""How long a stage of a verdict may take, for whoever is to tell one that hangs from one that is slow.

The time that a candidate and a problem's own code have is spent by the commands that they are asked (`judging.hosted`).
A stage may use up all of it, so nobody who knows only the stage can say sooner that it hangs.
"""

from __future__ import annotations

from kerneldojo.judging.reference import BUDGET_SECONDS

TURN = "turn"
"""The stage in which a verdict waits at a device's entrance, while others are judged there."""
CANDIDATES_STAGES = frozenset({"build", "compile", "contexts", "end", "start"})
"""Stages in which a reference runner is asked next to nothing."""


def seconds_of(stage: str, allowance: float, num_verdicts: int) -> float:
    """Seconds that a stage may take of what candidate and reference have; for all others too, where it waits for them.

    Args:
        stage: as `Findings.stage` names it.
        allowance: seconds for all that the candidate does.
        num_verdicts: verdicts that are under way at once; each is taken to have as long as this one.
    """
    if stage == TURN:
        return num_verdicts * (allowance + BUDGET_SECONDS)
    return allowance if stage in CANDIDATES_STAGES else allowance + BUDGET_SECONDS
