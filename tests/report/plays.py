"""Episodes made through the schema, from what became of each turn."""

from __future__ import annotations

import random

from kerneldojo.schema import (
    Answer,
    Candidate,
    Episode,
    Evaluation,
    Exploit,
    KernelTime,
    Problem,
    ProtocolRecord,
    Roofline,
    Status,
    Timing,
    Turn,
    Unverified,
    Usage,
)

CODE = '''import torch
import triton
import triton.language as tl


@triton.jit
def scale_rows(source, target, count, BLOCK: tl.constexpr):
    """One block of a row."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # {note}
    mask = offsets < count
    tl.store(target + offsets, tl.load(source + offsets, mask=mask) * {factor}, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        result = torch.empty_like(x)
        scale_rows[(triton.cdiv(x.numel(), {block}),)](x, result, x.numel(), BLOCK={block})
        return result
'''


def verdict(outcome: str | float, **more: object) -> Evaluation:
    """A verdict: a speedup for a pass, `untimed` for a pass without times, else a status."""
    protocol = ProtocolRecord(version="1", num_rounds=5)
    if outcome == "untimed":
        return Evaluation(status=Status.PASSED, correct=True, device="cpu", protocol=protocol)
    if outcome == "exploit":
        found = Exploit(name="no_causal_kernel", evidence="The answer is right without its own kernels.")
        credited = Unverified(outputs_matched=True, speedup=361.0)
        return Evaluation(status=Status.EXPLOIT, exploits=(found,), unverified=credited, protocol=protocol)
    if isinstance(outcome, str):
        return Evaluation(status=Status(outcome), message=f"the message for {outcome}", protocol=protocol)
    timing = Timing(source="modeled", median_ms=0.08 / outcome, confidence_interval_ms=(0.08 / outcome, 0.08 / outcome))
    fields: dict[str, object] = {
        "status": Status.PASSED,
        "correct": True,
        "speedup": outcome,
        "coverage": 0.9,
        "kernel_ms": 0.08 / outcome,
        "reference_ms": 0.08,
        "device": "model:h100",
        "timing": timing,
        "reference_timing": Timing(source="modeled", median_ms=0.08, confidence_interval_ms=(0.08, 0.08)),
        "kernels": (
            KernelTime(name="scale_rows", device_ms=0.072 / outcome, own=True),
            KernelTime(name="at::native::elementwise_kernel", device_ms=0.008 / outcome, num_launches=2),
        ),
        "roofline": Roofline(limit_ms=0.02, fraction=min(1.0, 0.25 * outcome)),
        "max_error": 0.31,
        "precision_class": "ieee",
        "protocol": protocol,
    }
    return Evaluation.model_validate(fields | more)


def turn(index: int, outcome: str | float, *, code: str | None = None, text: str | None = None) -> Turn:
    """A turn that ended in `outcome`; `no_code` and `failed` (the policy) have no verdict."""
    if outcome == "failed":
        return Turn(index=index, answer=Answer(text="", finish="failed", error="the endpoint is down"))
    if outcome == "no_code":
        return Turn(index=index, answer=Answer(text=text or "I cannot do that."), feedback="No code was found.")
    code = code or CODE.format(note=f"turn {index}", factor=2.0, block=128 << index)
    return Turn(
        index=index,
        answer=Answer(
            text=text
            or f"<plan>\nUse larger blocks, so that fewer programs are launched.\n</plan>\n```python\n{code}```",
            usage=Usage(prompt_tokens=900, answer_tokens=412, seconds=1.5),
        ),
        candidate=Candidate(source=code),
        evaluation=verdict(outcome),
        feedback="It is right. The slowest kernel is scale_rows; it reaches 25 % of the memory limit.",
        reward=0.0,
    )


def episode(problem: str, sample: int, outcomes: list[str | float], **more: object) -> Episode:
    """One attempt at a problem, by the outcomes of its turns."""
    source = f"# {problem}\nclass Model(torch.nn.Module): ...\n"
    return Episode.model_validate(
        {
            "id": f"katas/1/{problem}/{sample}",
            "problem": Problem(name=problem, source=source, suite="katas", level=1, notes="Doubles each row."),
            "sample": sample,
            "device": "model:h100",
            "policy": "teacher:fused",
            "turns": tuple(turn(index, outcome) for index, outcome in enumerate(outcomes)),
            "finish": "fault" if "failed" in outcomes else "turns",
        }
        | more
    )


def run(num_problems: int, num_samples: int, num_turns: int, *, seed: int = 0, boost: float = 1.0) -> list[Episode]:
    """Random outcomes that get better by turn, some problems harder than others."""
    generator = random.Random(seed)
    episodes: list[Episode] = []
    for number in range(num_problems):
        ease = generator.random()
        for sample in range(num_samples):
            outcomes: list[str | float] = []
            for index in range(num_turns):
                if generator.random() < ease * (0.5 + 0.2 * index):
                    outcomes.append(round(boost * generator.lognormvariate(0.2 + 0.15 * index, 0.5), 3))
                else:
                    bad = ["incorrect", "incorrect", "compile_error", "runtime_error", "no_code", "exploit", "timeout"]
                    outcomes.append(generator.choice(bad))
            episodes.append(episode(f"kata_{number}", sample, outcomes))
    return episodes
