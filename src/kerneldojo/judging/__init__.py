"""Judging one candidate: a reference and a generated kernel go in, an `Evaluation` comes out.

    from kerneldojo import Candidate, Problem, judge

    evaluation = judge(Problem(name="mine", source=reference), Candidate(source=kernel), device="model:h100")

`judge` keeps its fork servers warm for the life of the process, so that the second call is much cheaper than the
first. `Judge` is the same as an object with a lifetime of its own; it is imported, and torch with it, when it is first
asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kerneldojo.judging.shared import audit_problem, judge

if TYPE_CHECKING:
    from kerneldojo.judging.bench import Judge

__all__ = ["Judge", "audit_problem", "judge"]


def __getattr__(name: str) -> Any:
    if name == "Judge":
        from kerneldojo.judging.bench import Judge

        return Judge
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
