"""The end of `dojo learn`, as a terminal shows it: what each phase took, and both policies side by side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kerneldojo.cli.pieces import with_interval
from kerneldojo.cli.text import percent, short_ratio
from kerneldojo.learning.record import Learned, Measured

NAMES = {
    "collect": "judge the teacher's answers",
    "SFT": "SFT: imitate them",
    "RL": "RL: learn from rewards",
    "benchmark": "benchmark on unseen graphs",
    "report": "report",
}


def learn_panel(learned: Learned, folder: Path) -> RenderableType:
    """Both tables, and where the reports lie."""
    return Group(_phases(learned), _figures(learned), *_small_print(learned, folder))


def _phases(learned: Learned) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), expand=True, show_footer=True)
    total = sum(phase.seconds for phase in learned.phases)
    table.add_column("phase", footer="all", no_wrap=True)
    asked = sum(phase.num_asked for phase in learned.phases)
    judged = sum(phase.num_judged for phase in learned.phases)
    for heading, footer in (
        ("seconds", f"{total:.0f}"),
        ("verdicts", f"{asked}"),
        ("/ s", ""),
        ("new ones", f"{judged}"),
        ("/ s", ""),
    ):
        table.add_column(heading, footer=footer, justify="right", no_wrap=True)
    for phase in learned.phases:
        cells = [f"{phase.seconds:.0f}" if phase.seconds >= 10 else f"{phase.seconds:.1f}"]
        for count in (phase.num_asked, phase.num_judged):
            cells += [str(count), f"{count / phase.seconds:.1f}"] if phase.num_asked else ["-", "-"]
        table.add_row(NAMES.get(phase.name, phase.name), *cells)
    return table


def _figures(learned: Learned) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), expand=True)
    table.add_column("on unseen graphs", no_wrap=True)
    for heading in ("before RL", "after RL", "change"):
        table.add_column(heading, justify="right", no_wrap=True)
    last = ""
    for pair in learned.figures:
        if pair.way != last:
            words = "likeliest answer" if pair.way == "greedy" else "sampled answer"
            table.add_row(Text(words, "dim"))
            last = pair.way
        is_speed = "speedup" in pair.name
        change = pair.after.value - pair.before.value
        words = f"{change:+.2f}×" if is_speed else f"{100 * change:+.0f} points"
        is_better = (change < 0) if pair.name == "exploits" else (change > 0)
        colour = "" if not change else "bold green" if is_better else "bold red"
        cells = _cell(pair.before, is_speed), _cell(pair.after, is_speed), Text(words, colour)
        table.add_row(Text(f"  {pair.name}"), *cells)
    return table


def _cell(one: Measured, is_speed: bool) -> Text:
    return with_interval(one.value, one.low, one.high, short_ratio if is_speed else percent)


def _small_print(learned: Learned, folder: Path) -> Iterator[Text]:
    if learned.sft_loss is not None:
        yield Text(f"SFT: {learned.sft_steps} steps, {learned.sft_loss:.2f} nats a token on answers kept apart.", "dim")
    if learned.validation:
        points = ", ".join(f"{percent(value)} after {step}" for step, value in learned.validation)
        yield Text(f"RL: fast at 1.2× on {learned.config.num_validation} graphs:validation: {points} steps.", "dim")
    yield Text(
        f"Unseen: {learned.config.num_test} graphs of graphs:test. Ranges: 95 %, bootstrap over graphs. "
        "A failure has speedup 0.",
        "dim",
    )
    if learned.config.device.startswith("model:"):
        yield Text("Times are modelled by a roofline, not measured; they are for development only.", "cyan")
    for page in learned.pages:
        yield Text(f"report: {folder / page}")
