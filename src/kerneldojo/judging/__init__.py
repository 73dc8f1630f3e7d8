"""Judging one candidate: a reference and a generated kernel go in, an `Evaluation` comes out.

    from kerneldojo import Candidate, Problem, judge

    evaluation = judge(Problem(name="mine", source=reference), Candidate(source=kernel), device="model:h100")

`judge` keeps its fork servers warm for the life of the process, so that the second call is much cheaper than the
first. `Judge` is the same as an object with a lifetime of its own.
"""

from kerneldojo.judging.bench import Judge, audit_problem, judge

__all__ = ["Judge", "audit_problem", "judge"]
