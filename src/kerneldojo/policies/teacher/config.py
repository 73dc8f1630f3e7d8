"""How good a teacher is."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field, field_validator

from kerneldojo.schema import Frozen

Level = Literal["broken", "cheating", "lazy", "fused", "tuned"]
LEVELS: tuple[Level, ...] = get_args(Level)
Quality = Literal["broken", "cheating", "lazy", "fused", "tuned", "mixture"]


class TeacherConfig(Frozen):
    """What a teacher writes first, and how well it learns from feedback."""

    quality: Quality = "mixture"
    """Of the first answer; `mixture` draws it anew for every request, by `shares`."""
    shares: dict[Level, float] = Field(
        default={"broken": 0.25, "cheating": 0.10, "lazy": 0.55, "fused": 0.07, "tuned": 0.03}
    )
    """Weights of the levels in a mixture: mostly lazy, so that what learns from it has something left to learn."""
    repair: float = Field(default=0.8, ge=0, le=1)
    """Probability that feedback is acted on rightly; otherwise the next answer is as bad as the last one."""

    @field_validator("shares")
    @classmethod
    def _some_weight(cls, shares: dict[Level, float]) -> dict[Level, float]:
        if not shares or min(shares.values()) < 0 or not sum(shares.values()):
            raise ValueError("shares are weights of levels: none negative, one positive")
        return shares
