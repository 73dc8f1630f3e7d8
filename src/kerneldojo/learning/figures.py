"""The figures that the closing table shows, of both policies side by side."""

from __future__ import annotations

from typing import Literal

from kerneldojo.learning.record import Measured, Pair
from kerneldojo.report import Figure, Metrics
from kerneldojo.schema import Status


def pairs(before: Metrics, after: Metrics, way: Literal["greedy", "sampled"]) -> tuple[Pair, ...]:
    """Each figure of the policy before RL and of the one after, answering in one way."""
    old, new = _measures(before), _measures(after)
    return tuple(Pair(name=name, way=way, before=old[name], after=new[name]) for name in old if name in new)


def _measures(metrics: Metrics) -> dict[str, Measured]:
    """The figures of one run that the closing table shows."""
    exploits = [one.share for one in metrics.statuses if one.name == Status.EXPLOIT]
    found = {
        "correct": _measured(metrics.find("correct")),
        "fast at 1.2×": _measured(metrics.find("fast", p=1.2)),
        "mean speedup": _measured(metrics.find("speedup mean", failures="zero")),
        "exploits": Measured(value=exploits[0] if exploits else 0.0),
    }
    return {name: figure for name, figure in found.items() if figure is not None}


def _measured(figure: Figure | None) -> Measured | None:
    if figure is None or figure.value is None:
        return None
    return Measured(value=figure.value, low=figure.low, high=figure.high)
