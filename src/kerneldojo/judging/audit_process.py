"""The process in which `dojo problems audit` audits: one that may be killed for its hunger, and started again.

    python -P -m kerneldojo.judging.audit_process DEVICE [BYTES]

A problem a line comes in (`schema.Problem` as JSON), an answer a line goes out (`audit_file.Finding`). BYTES limits the
memory that this process and everything below it may have of their own, each for itself: a problem that is too large for
the machine then fails by itself, and does not have the kernel kill somebody else.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import sys
import time

from kerneldojo.contestant.sandbox import linux
from kerneldojo.files import own_standard_output
from kerneldojo.judging.audit_file import Finding
from kerneldojo.schema import Problem


def main(device: str, num_bytes: str = "") -> None:
    """Answer until the input ends."""
    owner = os.getppid()
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    if num_bytes:
        resource.setrlimit(resource.RLIMIT_DATA, (int(num_bytes), int(num_bytes)))
    logging.basicConfig(level=logging.ERROR)
    with own_standard_output() as output:
        for line in sys.stdin:
            if os.getppid() != owner:
                return
            problem = Problem.model_validate_json(line)
            output.write(find(problem, device, int(num_bytes) if num_bytes else None).model_dump_json() + "\n")
            output.flush()


def find(problem: Problem, device: str, memory_bytes: int | None = None) -> Finding:
    """What an audit says of a problem; what it raises is a finding too, and no end of the others."""
    from kerneldojo.judging import audit_problem
    from kerneldojo.problems import ProblemError

    started = time.monotonic()

    def ended(verdict: str, reason: str) -> Finding:
        seconds = round(time.monotonic() - started, 3)
        return Finding.model_validate({"verdict": verdict, "reason": reason, "seconds": seconds})

    try:
        report = audit_problem(problem, device, memory_bytes=memory_bytes)
    except ProblemError as error:
        return ended("invalid", str(error))
    except Exception as error:
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
            return ended("too large", f"the judge's own side: {_line(error)}")
        logging.getLogger(__name__).exception("the audit of %s failed", problem.name)
        return ended("failed", _line(error))
    if report.lacks:
        return ended({"memory": "too large", "time": "too slow"}[report.lacks], report.reason)
    return Finding(verdict=report.status, reason=report.reason, seconds=report.seconds, report=report)


def _line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]


if __name__ == "__main__":
    main(*sys.argv[1:])
