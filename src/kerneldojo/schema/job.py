"""A job: one order to judge, with everything that decides the verdict."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kerneldojo.schema.base import Frozen, content_hash
from kerneldojo.schema.problem import Candidate, Problem

MAX_TIMEOUT = 86_400.0
"""Most seconds that a candidate may be given: a day."""


MAX_DEVICE_LENGTH = 200
"""Longest name of a device: it stands in every list of tasks."""


class Job(Frozen):
    """One candidate to be judged for one problem; what an `Executor` takes and the service stores."""

    problem: Problem
    candidate: Candidate
    device: str = Field(default="auto", max_length=MAX_DEVICE_LENGTH)
    """`auto` for any device of the pool, `cuda` for any GPU of it, else one of them: `cuda:1`, `cpu`, `model:h100`."""
    protocol: Literal["quick", "standard", "strict"] = "standard"
    """How thoroughly to judge; see `kerneldojo.judging.protocol`."""
    baseline: Literal["eager", "compile"] = "eager"
    """What the speedup is measured against."""
    precision: Literal["ieee", "tf32"] = "tf32"
    """The class of arithmetic that float32 problems allow."""
    timeout: float | None = Field(default=None, gt=0, le=MAX_TIMEOUT)
    """Seconds for everything that the candidate does; None for the protocol's own."""
    allow_degenerate: bool = False
    """Judge a problem that its audit refuses; the verdict says so."""
    fresh: bool = False
    """Judge it even where an equal job already has a verdict."""

    @property
    def hash(self) -> str:
        """Content hash of what decides the verdict: equal jobs have equal verdicts, whoever asks and however often."""
        settings = (self.device, self.protocol, self.baseline, self.precision, repr(self.timeout))
        flags = (repr(self.allow_degenerate), repr(self.problem.irreducible))
        return content_hash("job", self.problem.hash, self.candidate.hash, *settings, *flags)
