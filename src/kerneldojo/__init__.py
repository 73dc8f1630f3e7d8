"""Kernel Dojo: a judge for generated GPU kernels, and the environment to train kernel-writing models on it.

    from kerneldojo import Candidate, Problem, judge

    evaluation = judge(Problem(name="mine", source=reference), Candidate(source=kernel))

The nouns are light; `judge` imports torch when it is first asked for, `Client` (a service elsewhere) needs only httpx.
Each is imported when it is first asked for, the nouns too: what forks keepers has no use for them, and stays small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kerneldojo.client import AsyncClient, Client
    from kerneldojo.judging import Judge, judge
    from kerneldojo.schema import Candidate, Evaluation, Exploit, Problem, Status

__all__ = ["AsyncClient", "Candidate", "Client", "Evaluation", "Exploit", "Judge", "Problem", "Status", "judge"]


def __getattr__(name: str) -> Any:
    if name in ("Judge", "judge"):
        from kerneldojo import judging

        return getattr(judging, name)
    if name in ("Candidate", "Evaluation", "Exploit", "Problem", "Status"):
        from kerneldojo import schema

        return getattr(schema, name)
    if name in ("AsyncClient", "Client"):
        from kerneldojo import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
