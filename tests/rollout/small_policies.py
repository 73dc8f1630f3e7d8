"""Small policies and judges that really answer and really judge, each by a rule that a test can check."""

from __future__ import annotations

import ast
import asyncio
from collections import Counter
from dataclasses import dataclass, field

from kerneldojo.episodes.one_shot import REFERENCE, TRITON
from kerneldojo.policies import Request
from kerneldojo.schema import Answer, Evaluation, Job, Problem, Status, Timing
from kerneldojo.schema.parsing import parse_python

PROBLEMS = [Problem(name=f"add{number}", source=f"{REFERENCE}# {number}\n") for number in range(6)]


def code_for(seed: int) -> str:
    return f"{TRITON}SEED = {seed}\n"


@dataclass
class Fixed:
    """Writes the same kernel each time, signed with the seed that it was asked with."""

    latency: float = 0.0
    num_failures: int = 0
    """Answers that fail before one succeeds."""
    name: str = "fixed"
    gives_ids: bool = False
    requests: list[Request] = field(default_factory=list)

    async def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        await asyncio.sleep(self.latency)
        if self.num_failures:
            self.num_failures -= 1
            return Answer(text="", finish="failed", error="connection reset")
        return Answer(text=f"```python\n{code_for(request.seed)}```", prompt_ids=request.prompt_ids)

    async def close(self) -> None:
        return None


@dataclass
class Same(Fixed):
    """Writes the same kernel to everybody."""

    name: str = "same"

    async def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        return Answer(text=f"```python\n{TRITON}```")


@dataclass
class Parity:
    """Passes a candidate whose seed is even, with a speedup of 1 to 2 by its size; counts what it is asked."""

    num_faults: int = 0
    """Verdicts that are faults of ours before the first real one."""
    asked: Counter[str] = field(default_factory=Counter)
    at_once: int = 0
    most_at_once: int = 0

    async def __call__(self, job: Job) -> Evaluation:
        self.asked[job.hash] += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if self.num_faults:
            self.num_faults -= 1
            return Evaluation(status=Status.INFRASTRUCTURE_ERROR, message="no device")
        return parity(job)


def parity(job: Job) -> Evaluation:
    tree = parse_python(job.candidate.source)
    last = tree.body[-1]
    seed = last.value.value if isinstance(last, ast.Assign) and isinstance(last.value, ast.Constant) else 0
    if seed % 2:
        return Evaluation(status=Status.INCORRECT, message="an odd seed")
    speedup = 1 + seed % 100 / 100
    times = [Timing(source="modeled", median_ms=ms, confidence_interval_ms=(ms, ms)) for ms in (1.0, speedup)]
    return Evaluation(status=Status.PASSED, correct=True, speedup=speedup, timing=times[0], reference_timing=times[1])
