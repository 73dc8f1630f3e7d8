"""The result of a reward function: a number for an answer, or the statement that there is none."""

from __future__ import annotations

from pydantic import Field, model_validator

from kerneldojo.schema import Evaluation, Frozen


class Reward(Frozen):
    """What one answer earned.

    A masked reward has no value at all rather than a zero, so that nobody can average it by accident: in a tensor it
    is NaN, and `algorithms.pipeline` drops the trajectory that it belongs to.
    """

    value: float | None
    """The reward of the answer as a whole; None exactly where it is masked."""
    valid: bool = True
    """False where the verdict speaks of us or of the problem, not of the answer: to be masked, never scored."""
    plan: float | None = None
    """Reward of the plan's tokens where the scheme tells them apart (TritonRL), else None."""
    code: float | None = None
    """Reward of the code's tokens where the scheme tells them apart (TritonRL), else None."""
    parts: dict[str, float] = Field(default_factory=dict)
    """The terms that `value` was summed from, for logs and reports."""
    reason: str = ""
    """Why it is masked, in one line."""

    @model_validator(mode="after")
    def _masked_means_no_value(self) -> Reward:
        if self.valid != (self.value is not None):
            raise ValueError("a reward has a value exactly if it is valid")
        if (self.plan is None) != (self.code is None) or (self.plan is not None and not self.valid):
            raise ValueError("plan and code rewards come together, and only with a valid reward")
        return self


def masked(evaluation: Evaluation) -> Reward:
    """The reward of a verdict that does not speak of the candidate."""
    return Reward(value=None, valid=False, reason=f"{evaluation.status}: {evaluation.message}".rstrip(": "))
