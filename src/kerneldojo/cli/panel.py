"""An `Evaluation` as a person reads it: the verdict first, then why, then how fast, then the small print.

`panel` is a pure function from an `Evaluation` to something that rich can draw. It shows nothing that the evaluation
does not hold: a figure that does not exist is left out or said to be missing, never drawn as zero, and a modelled time
is called modelled wherever it stands. Colours are the terminal's own sixteen, so that dark and light themes both work,
and none of them carries meaning that a word does not carry too.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kerneldojo.cli.bars import Bar
from kerneldojo.cli.pieces import framed
from kerneldojo.cli.text import duration, harmless, magnitude, one_line, percent, ratio
from kerneldojo.schema import Evaluation, KernelTime, Status, Timing

MEANING: dict[Status, tuple[str, str]] = {
    Status.PASSED: ("green", "Right in every round; its own kernels have a part in it."),
    Status.INCORRECT: ("red", "Its answers are not the reference's."),
    Status.EXPLOIT: ("magenta", "It sought credit without doing the work."),
    Status.COMPILE_ERROR: ("red", "Its source cannot be read, imported or compiled."),
    Status.RUNTIME_ERROR: ("red", "It failed while running."),
    Status.TIMEOUT: ("red", "It did not finish in time."),
    Status.OUT_OF_MEMORY: ("red", "It asked for more memory than it was given."),
    Status.UNSUPPORTED_ON_DEVICE: ("yellow", "This device cannot judge it; that is no fault of the candidate."),
    Status.INVALID_PROBLEM: ("yellow", "The problem itself cannot be judged."),
    Status.INFRASTRUCTURE_ERROR: ("yellow", "The judge failed, not the candidate; asking again may help."),
}
"""Colour and one sentence for each status."""

MAX_KERNELS = 8
"""Kernels that get a bar of their own; the rest are added up."""


def badge(status: Status) -> Text:
    """The status in capitals on its colour; readable without the colour."""
    colour, _ = MEANING[status]
    ink = "black" if colour in ("green", "yellow") else "white"
    return Text(f" {status.value.upper().replace('_', ' ')} ", style=f"bold {ink} on {colour}")


def panel(evaluation: Evaluation, *, title: str = "") -> RenderableType:
    """What a terminal shows for `evaluation`; `title` names what was judged (it may hold any text)."""
    colour, _ = MEANING[evaluation.status]
    subtitle = _device(evaluation) if evaluation.device else ""
    return framed(_sections(evaluation), title=title, subtitle=subtitle, colour=colour)


def outcome(evaluation: Evaluation) -> str:
    """Why, in one line: the evidence against a cheat, else the judge's message, else what the status means.

    Of a traceback only the last line is kept, which is the one that names the error.
    """
    if evaluation.exploits:
        return one_line(" ".join(exploit.evidence for exploit in evaluation.exploits))
    message = evaluation.message.strip()
    if evaluation.status in (Status.COMPILE_ERROR, Status.RUNTIME_ERROR):
        message = message.rpartition("\n")[2]
    return one_line(message) or MEANING[evaluation.status][1]


def _sections(evaluation: Evaluation) -> Iterator[RenderableType]:
    yield from _verdict(evaluation)
    yield from _exploits(evaluation)
    yield from _speed(evaluation)
    yield from _kernels(evaluation)
    yield from _notes(evaluation)
    yield Text()
    yield from _small_print(evaluation)


def _verdict(evaluation: Evaluation) -> Iterator[RenderableType]:
    _, meaning = MEANING[evaluation.status]
    if evaluation.status is Status.PASSED and not evaluation.is_cause_shown:
        meaning = "Right in every round; whether its own kernels have a part in it nobody can say."
    yield Text.assemble(badge(evaluation.status), "  ", (meaning, "bold"))
    message = harmless(evaluation.message).strip()
    # A cheat's evidence stands under its own heading; a message that only repeats it would be read twice.
    repeats = bool(evaluation.exploits) and all(
        exploit.evidence in evaluation.message for exploit in evaluation.exploits
    )
    # So would that of a pass that was timed: it says what the badge and the speedup say.
    repeats = repeats or (evaluation.status is Status.PASSED and evaluation.speedup is not None)
    if message and not repeats:
        yield Padding(Text(message), (1, 0, 0, 0))


def _exploits(evaluation: Evaluation) -> Iterator[RenderableType]:
    if not evaluation.exploits:
        return
    yield _heading("Evidence")
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=24)
    table.add_column(overflow="fold")
    for exploit in evaluation.exploits:
        table.add_row(
            Text(one_line(exploit.name, limit=60), "bold magenta"), Text(harmless(exploit.evidence, limit=1000))
        )
    yield table
    credited = evaluation.unverified
    if credited is None:
        return
    credit = ["called it correct"] if credited.outputs_matched else []
    credit += [f"credited it with {ratio(credited.speedup)}"] if credited.speedup is not None else []
    if credit:
        yield Text(f"A naive evaluator would have {' and '.join(credit)}; here that counts for nothing.", "italic")


def _speed(evaluation: Evaluation) -> Iterator[RenderableType]:
    kernel, reference = evaluation.kernel_ms, evaluation.reference_ms
    if kernel is None and evaluation.status is Status.PASSED:
        yield _heading("Speed")
        yield Text(_why_untimed(evaluation))
    if kernel is None:
        return
    modelled = evaluation.timing.source == "modeled"
    words = "Speed" if evaluation.speedup is not None else "Times"
    yield _heading(f"{words}, modelled (not measured)" if modelled else words)
    if evaluation.speedup is not None:
        yield _speedup(evaluation)
    longest = max(kernel, reference or 0.0)
    style = "cyan" if modelled else "green"
    table = _bar_table()
    table.add_row("kernel", Bar(kernel / longest if longest else 0, style=style), _time(evaluation.timing, kernel))
    if reference is not None:
        share = reference / longest if longest else 0
        table.add_row("reference", Bar(share, style="bright_blue"), _time(evaluation.reference_timing, reference))
    limit = evaluation.roofline
    if limit is not None and limit.fraction is not None:
        words = f"{percent(limit.fraction)} of the limit, {duration(limit.limit_ms)} ({limit.bound})"
        table.add_row("roofline", Bar(limit.fraction, style="yellow", track=True), words)
    if evaluation.coverage is not None:
        words = f"{percent(evaluation.coverage)} of device time in own kernels"
        table.add_row("coverage", Bar(evaluation.coverage, style=style, track=True), words)
    yield table
    if evaluation.coverage is None and evaluation.status is Status.PASSED:
        yield Text("coverage unknown: no trustworthy record of where the device time went", "dim")
    if evaluation.timing.host_bound:
        yield Text(
            "Host-bound: the device was busy for less than 80 % of the time; launches are what is measured.", "italic"
        )


def _why_untimed(evaluation: Evaluation) -> str:
    if evaluation.device.startswith("cpu"):
        return (
            "No times: Triton's interpreter on a CPU has none, and none are invented. This verdict is on correctness."
        )
    return "No times were taken."


def _speedup(evaluation: Evaluation) -> Text:
    assert evaluation.speedup is not None
    against = "torch.compile" if evaluation.protocol.baseline == "compile" else "eager PyTorch"
    line = Text.assemble((ratio(evaluation.speedup), "bold"), f" as fast as {against}")
    interval = speedup_interval(evaluation)
    if evaluation.timing.source == "modeled":
        line.append("  (modelled: a roofline, for development only)", "cyan")
    elif interval is not None:
        line.append(f"  (95 % interval {ratio(interval[0])} to {ratio(interval[1])})")
    return line


def speedup_interval(evaluation: Evaluation) -> tuple[float, float] | None:
    """Bounds of the speedup from both times' 95 % intervals, taken at their worst; None where either lacks one."""
    kernel, reference = evaluation.timing.confidence_interval_ms, evaluation.reference_timing.confidence_interval_ms
    if kernel is None or reference is None or min(kernel) <= 0:
        return None
    return reference[0] / kernel[1], reference[1] / kernel[0]


def _time(timing: Timing, milliseconds: float) -> str:
    if timing.source == "modeled":
        return f"{duration(milliseconds)} modelled"
    return f"{duration(milliseconds)}, {timing.num_trials} trials" if timing.num_trials else duration(milliseconds)


def _kernels(evaluation: Evaluation) -> Iterator[RenderableType]:
    if not evaluation.kernels:
        return
    ranked = sorted(evaluation.kernels, key=lambda kernel: -kernel.device_ms)
    shown, rest = ranked[:MAX_KERNELS], ranked[MAX_KERNELS:]
    modelled = evaluation.timing.source == "modeled"
    yield _heading("Where the time went" + (", modelled" if modelled else "") + " (● its own kernel, ○ a library's)")
    total = sum(kernel.device_ms for kernel in ranked)
    table = _bar_table()
    for kernel in shown:
        table.add_row(*_kernel_row(kernel, total))
    if rest:
        time = sum(kernel.device_ms for kernel in rest)
        table.add_row(f"  {len(rest)} more", Bar(time / total if total else 0, style="bright_blue"), duration(time))
    yield table


def _kernel_row(kernel: KernelTime, total_ms: float) -> tuple[Text, Bar, str]:
    share = kernel.device_ms / total_ms if total_ms else 0.0
    style = "green" if kernel.own else "bright_blue"
    name = Text.assemble(("● " if kernel.own else "○ ", style), one_line(kernel.name, limit=60))
    launches = f", {kernel.num_launches:g} launches" if kernel.num_launches != 1 else ""
    return name, Bar(share, style=style), f"{duration(kernel.device_ms)} {percent(share)}{launches}"


def _notes(evaluation: Evaluation) -> Iterator[RenderableType]:
    if not evaluation.notes:
        return
    yield _heading("Notes")
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for note in evaluation.notes:
        table.add_row("-", Text(one_line(note, limit=600)))
    yield table


def _small_print(evaluation: Evaluation) -> Iterator[RenderableType]:
    protocol = evaluation.protocol
    facts = [
        f"protocol {protocol.name} {protocol.version}".strip(),
        f"{protocol.num_rounds} rounds" if protocol.num_rounds else "",
        evaluation.language or "",
        f"precision {evaluation.precision_class}" if evaluation.precision_class else "",
        f"largest error {magnitude(evaluation.max_error)} the tolerance" if evaluation.max_error is not None else "",
        f"oracle {protocol.oracle}" if protocol.oracle else "",
    ]
    yield Text(" · ".join(one_line(fact) for fact in facts if fact), "dim")
    if evaluation.stage_seconds:
        stages = evaluation.stages
        total = evaluation.stage_seconds.get("total") or sum(stages.values())
        listed = " · ".join(f"{one_line(name)} {seconds:.2f} s" for name, seconds in stages.items() if seconds >= 0.005)
        yield Text(f"judged in {total:.2f} s" + (f": {listed}" if listed else ""), "dim")


def _device(evaluation: Evaluation) -> str:
    return f"{evaluation.device}, modelled" if evaluation.timing.source == "modeled" else evaluation.device


def _heading(words: str) -> RenderableType:
    return Padding(Text(words, "bold"), (1, 0, 0, 0))


def _bar_table() -> Table:
    table = Table.grid(expand=True, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, overflow="ellipsis", min_width=9, max_width=26)
    table.add_column(ratio=1, min_width=8)
    table.add_column(no_wrap=True, overflow="ellipsis")
    return table
