"""What a policy reads about its answer.

Only fields of the `Evaluation` are used, which the judge wrote for this reader: no seed, input or expected value can
leak through here. Text that a candidate had a hand in (names of kernels, messages) is cut and put on one line each.
"""

from __future__ import annotations

from kerneldojo.episodes.config import PlayConfig
from kerneldojo.schema import Answer, Evaluation, KernelTime, Status
from kerneldojo.schema.figures import times

MAX_MESSAGE = 1500
"""Longest message of the judge that is passed on, in characters."""
MAX_LINE = 160
"""Longest feedback in the compact style, in characters."""
MAX_KERNELS = 5
"""Kernels whose times are listed."""

VERDICTS = {
    Status.PASSED: "Correct.",
    Status.INCORRECT: "It compiled and ran, but its answer is wrong.",
    Status.EXPLOIT: "This was taken for cheating and earns nothing.",
    Status.COMPILE_ERROR: "It could not be read or compiled.",
    Status.RUNTIME_ERROR: "It compiled, but failed while running.",
    Status.TIMEOUT: "It did not finish within its time.",
    Status.OUT_OF_MEMORY: "It asked for more memory than there is.",
    Status.UNSUPPORTED_ON_DEVICE: "This device cannot judge it; that is no fault of yours, and nothing was scored.",
    Status.INVALID_PROBLEM: "The problem itself cannot be judged; that is no fault of yours, and nothing was scored.",
    Status.INFRASTRUCTURE_ERROR: "The judge failed, not your answer; nothing was scored.",
}
"""The first sentence by status."""

ADVICE = {
    Status.INCORRECT: "Find the cause in your kernel: indices, masks, strides, types, the order of operations.",
    Status.EXPLOIT: "Compute the answer, in every call, with kernels of your own.",
    Status.COMPILE_ERROR: "Correct this first.",
    Status.RUNTIME_ERROR: "Correct this first: look at bounds, shapes, types and launch arguments.",
    Status.TIMEOUT: "Look for a loop without end or a grid that is far too large, then make it do less work.",
    Status.OUT_OF_MEMORY: "Use smaller temporary tensors, or none: work in place of registers and tiles.",
}
"""The last sentence by status."""


def not_parsed(answer: Answer, config: PlayConfig) -> str:
    """Feedback on an answer in which there is no code, or which was cut at the length limit."""
    was_cut = answer.finish == "length"
    if config.style == "compact":
        return "not parsed: too long" if was_cut else "not parsed: no code"
    if was_cut:
        return (
            f"Your answer was cut at {config.max_answer_tokens} tokens, so it was not judged and earns nothing. Be "
            "brief enough to finish."
        )
    return (
        "No code was found in your answer, so there was nothing to judge, and it earns nothing. Put the whole source, "
        "with `class ModelNew`, into one fenced Python block outside of your thoughts and your plan."
    )


def feedback(evaluation: Evaluation, config: PlayConfig) -> str:
    """Feedback on a verdict: a few lines in the full style, one in the compact."""
    return _line(evaluation) if config.style == "compact" else _text(evaluation)


def _text(evaluation: Evaluation) -> str:
    status = evaluation.status
    lines = [VERDICTS[status]]
    if status is Status.PASSED:
        lines.extend(_speed(evaluation))
    elif status is Status.EXPLOIT:
        lines.extend(f"- {_one_line(item.name, 80)}: {_one_line(item.evidence, 500)}" for item in evaluation.exploits)
    elif evaluation.message:
        lines.append(_cut(evaluation.message, MAX_MESSAGE))
    if status is Status.INCORRECT and evaluation.max_error is not None and "times the tolerance" not in lines[-1]:
        lines.append(f"The largest error seen is {evaluation.max_error:.3g} times what is allowed.")
    lines.append(ADVICE.get(status) or _next_step(evaluation))
    return "\n".join(line for line in lines if line)


def _speed(evaluation: Evaluation) -> list[str]:
    lines: list[str] = []
    how = " (modelled)" if evaluation.timing.source == "modeled" else ""
    if evaluation.speedup is None or evaluation.kernel_ms is None or evaluation.reference_ms is None:
        lines.append("There is no clock on this device, so its speed is not known.")
    else:
        both = f"{_time(evaluation.kernel_ms)} against {_time(evaluation.reference_ms)} a call"
        lines.append(f"It is {times(evaluation.speedup)} times as fast as the reference{how}: {both}.")
    if evaluation.coverage is not None:
        lines.append(f"{evaluation.coverage:.0%} of the device's time was spent in your own kernels.")
    limit = evaluation.roofline
    if limit is not None and limit.fraction is not None:
        lines.append(
            f"The physical limit of this problem is {_time(limit.limit_ms)} ({limit.bound}-bound); you are at "
            f"{limit.fraction:.0%} of it."
        )
    if evaluation.kernels:
        lines.append("Where the time went:")
        ranked = sorted(evaluation.kernels, key=lambda kernel: -kernel.device_ms)
        lines.extend(_kernel(kernel) for kernel in ranked[:MAX_KERNELS])
        if len(ranked) > MAX_KERNELS:
            rest = sum(kernel.device_ms for kernel in ranked[MAX_KERNELS:])
            lines.append(f"- {len(ranked) - MAX_KERNELS} more: {_time(rest)}")
    if evaluation.timing.host_bound:
        lines.append("The device was idle for part of the call: launches and Python are what takes the time.")
    return lines


def _kernel(kernel: KernelTime) -> str:
    launches = f", {kernel.num_launches:g} launches" if kernel.num_launches != 1 else ""
    whose = "yours" if kernel.own else "the library's"
    return f"- {_one_line(kernel.name, 80)} ({whose}): {_time(kernel.device_ms)}{launches}"


def _next_step(evaluation: Evaluation) -> str:
    if evaluation.status is not Status.PASSED:
        return ""
    if evaluation.coverage is not None and evaluation.coverage < 0.5:
        return "Most of the work is still the library's: take over more of it, and make it faster."
    return "Make it faster, and keep it correct."


def _line(evaluation: Evaluation) -> str:
    status = evaluation.status
    if status is Status.PASSED:
        parts = ["correct"]
        if evaluation.speedup is not None:
            parts.append(f"{evaluation.speedup:.1f}x")
        if evaluation.coverage is not None:
            parts.append(f"own {10 * round(10 * evaluation.coverage)}%")
        return " ".join(parts)
    if status is Status.EXPLOIT:
        return _one_line(f"exploit: {', '.join(item.name for item in evaluation.exploits)}", MAX_LINE)
    words = status.value.replace("_", " ")
    message = evaluation.message.strip()
    if status in (Status.COMPILE_ERROR, Status.RUNTIME_ERROR):
        message = message.rpartition("\n")[2]  # of a traceback, the line that names the error
    return _one_line(f"{words}: {message}" if message else words, MAX_LINE)


def _time(milliseconds: float) -> str:
    if milliseconds < 1:
        return f"{1000 * milliseconds:.3g} us"
    return f"{milliseconds:.4g} ms" if milliseconds < 1000 else f"{milliseconds:.0f} ms"


def _one_line(text: str, limit: int) -> str:
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def _cut(text: str, limit: int) -> str:
    text = text.strip()
    if not text.replace("\n", "").isprintable():
        text = "".join(c if c.isprintable() or c == "\n" else " " for c in text)
    return text if len(text) <= limit else f"{text[: limit // 2]}\n[...]\n{text[-(limit // 2) :]}"
