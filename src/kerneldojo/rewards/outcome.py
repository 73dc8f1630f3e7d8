"""What a reward may know of a verdict: right or not, how fast, and how much of the work was its own.

Three rules stand between the judge and every reward, whatever its formula:

1. *Our own faults are masked, never scored.* A verdict that does not speak of the candidate
   (`infrastructure_error`, `unsupported_on_device`, `invalid_problem`) has no outcome at all. Scoring it as zero would
   punish the policy for our broken disk.
2. *Every failure is the same failure.* Wrong, crashed, out of time, out of memory, not compiled and caught cheating all
   have the outcome "not correct"; no way of failing is better than another.
3. *Noise is not a reward.* A measured speedup whose 95 % interval contains 1 counts as 1: a policy that is paid for
   luck learns to draw more lots. Modelled times are exact and are taken as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kerneldojo.schema import Evaluation, Status, Timing


@dataclass(frozen=True)
class Outcome:
    """The facts that a reward is a function of."""

    correct: bool
    """C of the papers: right in every round, by its own kernels."""
    speedup: float | None = None
    """Reference time over kernel time that may be paid for; None where nothing was timed."""
    coverage: float | None = None
    """Share of the device time in own kernels (Dr. Kernel's PR), in [0, 1]; None where unknown."""


def judged(evaluation: Evaluation) -> Outcome | None:
    """The outcome as the judge saw it; None where the verdict does not speak of the candidate and must be masked."""
    if not evaluation.status.is_about_candidate:
        return None
    if evaluation.status is not Status.PASSED:
        return Outcome(correct=False)
    return Outcome(correct=True, speedup=credited_speedup(evaluation), coverage=evaluation.coverage)


def credited_speedup(evaluation: Evaluation) -> float | None:
    """The speedup that may be paid for, after the rule that noise is not a reward.

    - Nothing timed (device `cpu`), or a figure that is not finite and positive: None. No time is invented.
    - Modelled on both sides: the figure itself.
    - Measured: 1.0 if the interval of the ratio contains 1, else the figure itself.
    - Measured, but one side came without an interval: min(speedup, 1). A gain that nobody can vouch for is not paid,
      a loss is not forgiven.
    """
    speedup = evaluation.speedup
    if speedup is None or not math.isfinite(speedup) or speedup <= 0:
        return None
    if evaluation.timing.source == "modeled" and evaluation.reference_timing.source == "modeled":
        return speedup
    interval = speedup_interval(evaluation)
    if interval is None:
        return min(speedup, 1.0)
    low, high = interval
    return 1.0 if low <= 1.0 <= high else speedup


def speedup_interval(evaluation: Evaluation) -> tuple[float, float] | None:
    """95 % interval of the speedup, from the 95 % intervals of both timings; None where one of these is missing.

    The logarithm of the ratio is a difference of two independent estimates, so their half-widths add in quadrature,
    each side with the half-width that points its way (MOVER: Zou and Donner, Statistics in Medicine 27, 2008). Taking
    the extreme quotients instead would be an interval of well over 95 %, and would call real gains noise.
    """
    reference = _log_half_widths(evaluation.reference_timing)
    kernel = _log_half_widths(evaluation.timing)
    if evaluation.speedup is None or evaluation.speedup <= 0 or reference is None or kernel is None:
        return None
    below = math.hypot(reference[0], kernel[1])  # a slow kernel or a fast reference makes the ratio small
    above = math.hypot(reference[1], kernel[0])
    return evaluation.speedup * math.exp(-below), evaluation.speedup * math.exp(above)


def _log_half_widths(timing: Timing) -> tuple[float, float] | None:
    """How far the interval reaches below and above the median, in log time; None where there is no usable interval."""
    if timing.median_ms is None or timing.confidence_interval_ms is None:
        return None
    low, high = timing.confidence_interval_ms
    if not 0 < low <= timing.median_ms <= high < math.inf:
        return None
    return math.log(timing.median_ms / low), math.log(high / timing.median_ms)
