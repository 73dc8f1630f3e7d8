"""How a stage failed, in the form in which it crosses to the judge: light, for both sides import it."""

from __future__ import annotations

from typing import Literal, TypedDict

Kind = Literal["compile_error", "runtime_error", "out_of_memory", "out_of_device_memory", "unsupported_on_device"]


class Failure(TypedDict):
    """How a stage failed."""

    kind: Kind
    text: str
    """As `contestant.failure` describes it."""
    line: int
    """Line of the candidate's source, 0 if none; the judge adds its text from a copy that the candidate cannot edit."""
