"""The judge as users call it: one for the process, whose fork servers warm up while torch is still being imported.

Both take a second or more, so this module is light, and the judge is imported when somebody asks for a verdict.
"""

from __future__ import annotations

import atexit
import threading
from typing import TYPE_CHECKING

from kerneldojo.judging.servers import Begun

if TYPE_CHECKING:
    from kerneldojo.judging.bench import Baseline, Judge, Precision
    from kerneldojo.problems.audit import AuditReport
    from kerneldojo.schema import Candidate, Evaluation, Problem

_shared: list[Judge] = []
_shared_lock = threading.Lock()


def shared(device: str) -> Judge:
    """The judge that `judge` uses: one for the process, made on first use.

    Args:
        device: that it is asked for; what is slow about it begins before torch is imported here.

    Raises:
        ValueError: an unknown device.
    """
    with _shared_lock:
        if not _shared:
            begun = Begun.ahead(device)
            from kerneldojo.judging.bench import Judge

            _shared.append(Judge(begun=begun))
            atexit.register(_shared[0].close)
        return _shared[0]


def judge(
    problem: Problem,
    candidate: Candidate,
    *,
    device: str = "auto",
    protocol: str = "standard",
    baseline: Baseline = "eager",
    precision: Precision = "tf32",
    timeout: float | None = None,
    allow_degenerate: bool = False,
) -> Evaluation:
    """Judge one candidate for one problem.

    Args:
        problem: the reference, in KernelBench's format.
        candidate: the answer; its `language` may be `auto`.
        device: `auto` (a CUDA device if there is one, else `model:h100`), `cuda:N`, `cpu` or `model:GPU`.
        protocol: `quick`, `standard` or `strict`: 2, 5 or 10 rounds, and timed trials to match.
        baseline: what the speedup is measured against.
        precision: the arithmetic that float32 problems allow; `ieee` refuses TF32.
        timeout: seconds for everything that the candidate does; the protocol's own by default.
        allow_degenerate: judge problems that the audit refuses; the verdict says so.

    Returns:
        The verdict. Whatever the candidate does is data in it; this never raises for a candidate's sake.

    Raises:
        ValueError: an unknown device or protocol (in one line).
    """
    return shared(device).judge(
        problem,
        candidate,
        device=device,
        protocol_name=protocol,
        baseline=baseline,
        precision=precision,
        timeout=timeout,
        allow_degenerate=allow_degenerate,
    )


def audit_problem(
    problem: Problem, device: str = "cpu", *, fresh: bool = False, memory_bytes: int | None = None
) -> AuditReport:
    """Audit one problem in a sandboxed reference runner; see `kerneldojo.problems.audit` and `Judge.audit`.

    Raises:
        ProblemError: the source is not in KernelBench's format, or the reference fails.
        ValueError: an unknown device.
    """
    return shared(device).audit(problem, device, fresh=fresh, memory_bytes=memory_bytes)
