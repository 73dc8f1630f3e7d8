"""Problems, answers and verdicts for the tests of play."""

from __future__ import annotations

from kerneldojo.episodes.one_shot import REFERENCE, TRITON
from kerneldojo.schema import Answer, Evaluation, Exploit, Job, KernelTime, Problem, Roofline, Status, Timing

PROBLEM = Problem(name="vector_add", source=REFERENCE, suite="request")


def answer_with(code: str = TRITON, prose: str = "One pass over both.") -> str:
    return f"<think>maybe\n```python\nclass ModelNew: draft\n```\n</think>\n{prose}\n\n```python\n{code}```\nDone."


def modeled(milliseconds: float) -> Timing:
    return Timing(source="modeled", median_ms=milliseconds, confidence_interval_ms=(milliseconds, milliseconds))


def passed(speedup: float = 1.5, coverage: float = 1.0) -> Evaluation:
    return Evaluation(
        status=Status.PASSED,
        correct=True,
        speedup=speedup,
        coverage=coverage,
        kernel_ms=0.02,
        reference_ms=0.02 * speedup,
        timing=modeled(0.02),
        reference_timing=modeled(0.02 * speedup),
        kernels=(KernelTime(name="add_kernel", device_ms=0.02, own=True),),
        roofline=Roofline(limit_ms=0.01, fraction=0.5),
    )


def verdict(status: Status, message: str = "") -> Evaluation:
    if status is Status.PASSED:
        return passed()
    exploits = (Exploit(name="no_causal_kernel", evidence="the answer stayed the same without its kernels"),)
    return Evaluation(status=status, message=message, exploits=exploits if status is Status.EXPLOIT else ())


def wrong(job: Job) -> Evaluation:
    return Evaluation(status=Status.INCORRECT, message=f"{len(job.candidate.source)} characters", max_error=3.5)


def sampled(text: str, ids: list[int], **fields) -> Answer:
    return Answer(text=text, answer_ids=tuple(ids), **fields)
