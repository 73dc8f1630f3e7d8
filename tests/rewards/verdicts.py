"""Verdicts for the tests, one for each status, as a judge writes them."""

from __future__ import annotations

from typing import Any

from kerneldojo.schema import Evaluation, Exploit, Status, Timing, Unverified

FAILURES = [
    Status.INCORRECT,
    Status.EXPLOIT,
    Status.COMPILE_ERROR,
    Status.RUNTIME_ERROR,
    Status.TIMEOUT,
    Status.OUT_OF_MEMORY,
]
"""Statuses that speak of the candidate and are no success."""

OURS = [Status.UNSUPPORTED_ON_DEVICE, Status.INVALID_PROBLEM, Status.INFRASTRUCTURE_ERROR]
"""Statuses that do not speak of the candidate."""


def modeled(milliseconds: float) -> Timing:
    return Timing(
        source="modeled", median_ms=milliseconds, confidence_interval_ms=(milliseconds, milliseconds), num_trials=1
    )


def measured(low: float, median: float, high: float) -> Timing:
    return Timing(source="measured", median_ms=median, confidence_interval_ms=(low, high), num_trials=100)


def passed(speedup: float, coverage: float | None = None, **fields: Any) -> Evaluation:
    """Right and timed by the model, so exactly, unless `fields` say otherwise."""
    timings = {"timing": modeled(1.0), "reference_timing": modeled(speedup)}
    return Evaluation(status=Status.PASSED, correct=True, speedup=speedup, coverage=coverage, **{**timings, **fields})


def failed(status: Status, **fields: Any) -> Evaluation:
    """A verdict with `status`; an exploit whose claim would be worth a lot to whoever believed it."""
    if status is Status.EXPLOIT:
        exploit = Exploit(name="no_causal_kernel", evidence="the answer did not change without its kernels")
        claim = Unverified(outputs_matched=True, speedup=50.0)
        fields = {"exploits": (exploit,), "unverified": claim, "coverage": 1.0, **fields}
    return Evaluation(status=status, **fields)
