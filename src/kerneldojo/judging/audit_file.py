"""What audits of many problems found, kept on disk: whoever is stopped goes on where it was.

Each finding is written before the next problem is begun. What says something about this machine (`too large`,
`too slow`, `failed`) is told apart from what the audit says about the problem (`degenerate`, `invalid`); what failed
for want of something is tried again if it may have more of it now.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from kerneldojo.files import append_line, read_lines
from kerneldojo.problems.report import AuditReport
from kerneldojo.schema import Frozen, Problem

Verdict = Literal["admitted", "degenerate", "invalid", "too large", "too slow", "failed"]


class Finding(Frozen):
    """What became of one audit."""

    verdict: Verdict
    reason: str = ""
    """Why it was not admitted, in one line."""
    seconds: float = 0.0
    report: AuditReport | None = None
    """The whole report, where the audit came to an end."""


class Limits(Frozen):
    """What one audit may use."""

    seconds: float | None = None
    """Wall-clock time; None for as long as it takes."""
    memory_gb: float | None = None
    """GiB of memory of each of its processes' own; None for all there is."""


class Audited(Frozen):
    """One line of the file."""

    problem: str
    """Hash of the problem."""
    name: str
    device: str
    limits: Limits
    finding: Finding

    def stands(self, problem: Problem, device: str, limits: Limits) -> bool:
        """Whether there is no use in auditing `problem` again."""
        if (self.problem, self.device) != (problem.hash, device) or self.finding.verdict == "failed":
            return False
        grown = {
            "too slow": _more(limits.seconds, self.limits.seconds),
            "too large": _more(limits.memory_gb, self.limits.memory_gb),
        }
        return not grown.get(self.finding.verdict, False)


def _more(now: float | None, then: float | None) -> bool:
    return (math.inf if now is None else now) > (math.inf if then is None else then)


class AuditFile:
    """Findings on disk, one a line; the last one on a problem counts.

    Raises:
        ValueError: it cannot be read or written, or is something else (in one line).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.touch()
            found = [Audited.model_validate_json(line) for _, line in read_lines(path)]
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror}") from None
        except ValidationError:
            raise ValueError(f"{path}: no file of audits") from None
        self.known = {one.problem: one for one in found}

    def add(self, found: Audited) -> None:
        """Write a finding; returns when it is on disk."""
        append_line(self._path, found.model_dump_json().encode())
        self.known[found.problem] = found
