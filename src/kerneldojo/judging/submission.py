"""What a contestant is given to import: a candidate, for a problem."""

from __future__ import annotations

from dataclasses import dataclass

from kerneldojo.schema import Candidate, Problem


@dataclass(frozen=True)
class Submission:
    """A candidate and the problem that it is meant for, whose names it may use (`contestant.borrowing`)."""

    candidate: Candidate
    problem: Problem | None = None

    @property
    def source(self) -> str:
        """The candidate's."""
        return self.candidate.source

    @property
    def entry_point(self) -> str:
        """The name of the candidate's class."""
        return self.candidate.entry_point

    @property
    def beside(self) -> str:
        """The problem's source, if there is one."""
        return self.problem.source if self.problem is not None else ""
