"""A run of `dojo evaluate` as a terminal shows it: a bar while it runs, a table when it ends."""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from kerneldojo.cli.bars import Bar
from kerneldojo.cli.pieces import framed
from kerneldojo.cli.streams import say
from kerneldojo.cli.text import one_line, percent, ratio
from kerneldojo.schema import Evaluation, Status

if TYPE_CHECKING:
    from kerneldojo.evaluate import Summary
    from kerneldojo.pool import Executor

COLOURS = {"passed": "green", "exploit": "magenta", "infrastructure_error": "yellow", "unsupported_on_device": "yellow"}
"""Of a status; the others are a candidate's failures and red."""
RATE_SECONDS = 120.0
"""The rate is that of the last two minutes."""
LINE_SECONDS = 15.0
"""How often a line is written where there is no terminal."""
DEVICE_SECONDS = 2.0
"""How often the devices are asked for their health."""
MOST_PROBLEMS = 20
"""Problems that the closing table lists."""


class Display:
    """Counts what is judged, and draws it.

    Args:
        total: candidates in all.
        done: those of them that have a verdict from before.
        executor: whose devices' health is shown.
        draws: whether there is a terminal; else a line is written now and then.
    """

    def __init__(self, total: int, done: int, executor: Executor, *, draws: bool) -> None:
        self._total, self._done, self._executor, self._draws = total, done, executor, draws
        self._bar = Progress(
            TextColumn("[bold]judging"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            expand=True,
        )
        self._task = self._bar.add_task("", total=total, completed=done)
        self._statuses = Counter[str]()
        self._times: deque[float] = deque([time.monotonic()])
        self._sick = ""
        self._next_line = time.monotonic() + LINE_SECONDS
        self._next_look = 0.0

    @property
    def num_faults(self) -> int:
        """Faults of ours so far."""
        return self._statuses[Status.INFRASTRUCTURE_ERROR.value]

    def judged(self, evaluation: Evaluation) -> None:
        """A verdict was recorded."""
        self._statuses[evaluation.status.value] += 1
        if evaluation.status is not Status.INFRASTRUCTURE_ERROR:
            self._done += 1
            self._bar.advance(self._task)
        now = time.monotonic()
        self._times.append(now)
        while now - self._times[0] > RATE_SECONDS:
            self._times.popleft()
        self.tick()

    def tick(self) -> None:
        """Look at the devices, and where there is no terminal say how far it is, now and then."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + DEVICE_SECONDS
            sick = [state for state in self._executor.devices() if not state.is_healthy]
            self._sick = ", ".join(f"{state.name}: {one_line(state.reason, limit=80)}" for state in sick)
        if not self._draws and now >= self._next_line:
            self._next_line = now + LINE_SECONDS
            say(", ".join(filter(None, [f"{self._done}/{self._total}", self.facts().plain])))

    @property
    def per_minute(self) -> float | None:
        """Verdicts a minute of late; None before the second."""
        span = time.monotonic() - self._times[0]
        return 60 * (len(self._times) - 1) / span if len(self._times) > 2 and span > 0 else None

    def facts(self) -> Text:
        """Rate, time left, and what became of the candidates, in one line."""
        parts: list[Text] = []
        rate = self.per_minute
        if rate:
            parts.append(Text(f"{_rate(rate)} a minute"))
            parts.append(Text(f"{_clock(60 * (self._total - self._done) / rate)} left"))
        for status, count in self._statuses.most_common():
            parts.append(Text(f"{status.replace('_', ' ')} {count}", COLOURS.get(status, "red")))
        if self._sick:
            parts.append(Text(self._sick, "yellow"))
        return Text(" · ").join(parts)

    def __rich__(self) -> RenderableType:
        return Group(self._bar, self.facts())


@contextmanager
def display_for(total: int, done: int, executor: Executor) -> Generator[Display]:
    """A display on standard error: drawn if that is a terminal, else a line every 15 seconds."""
    draws = sys.stderr.isatty()
    display = Display(total, done, executor, draws=draws)
    if not draws:
        yield display
        return
    with Live(display, console=Console(stderr=True), refresh_per_second=4):
        yield display


def _rate(per_minute: float) -> str:
    return f"{per_minute:.0f}" if per_minute >= 100 else f"{per_minute:.3g}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def evaluate_panel(summary: Summary, *, title: str) -> RenderableType:
    """What a terminal shows of a run that ended."""
    return framed(_sections(summary), title=title)


def _sections(summary: Summary) -> Iterator[RenderableType]:
    where = ", ".join(one_line(device, limit=60) for device in summary.devices) or "no device yet"
    words = f"{summary.num_finished} of {summary.num_asked} candidates judged on {where}"
    if summary.num_judged_now:
        rate = 60 * summary.num_judged_now / max(summary.seconds, 1e-3)
        words += f"; {summary.num_judged_now} now, in {_clock(summary.seconds)} ({_rate(rate)} a minute)"
    yield Text(words)
    if summary.num_finished:
        yield Text()
        yield _outcomes(summary)
        yield Text()
        yield _figures(summary)
    if len(summary.problems) > 1:
        yield from _problems(summary)
    yield from _small_print(summary)


def _outcomes(summary: Summary) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    table.add_column(justify="right", no_wrap=True)
    for status, count in summary.statuses.items():
        share = count / summary.num_finished
        bar = Bar(share, style=COLOURS.get(status, "red"), track=True)
        table.add_row(Text(status.replace("_", " ")), bar, f"{count}  {percent(share)}")
    return table


def _figures(summary: Summary) -> Text:
    if summary.median_speedup is None or summary.geometric_speedup is None:
        return Text("Nothing was timed, so there are no speedups.", "dim")
    parts = [
        Text(f"speedup of {summary.num_timed} timed: median "),
        Text(ratio(summary.median_speedup), "bold"),
        Text(", geometric mean "),
        Text(ratio(summary.geometric_speedup), "bold"),
        Text(f", {summary.num_faster} above 1"),
    ]
    if summary.median_coverage is not None:
        parts.append(Text(f"; median coverage {percent(summary.median_coverage)}"))
    return Text().join(parts)


def _problems(summary: Summary) -> Iterator[RenderableType]:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), expand=True)
    table.add_column("problem", ratio=1, overflow="ellipsis", no_wrap=True)
    for heading in ("judged", "passed", "best speedup"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in summary.problems[:MOST_PROBLEMS]:
        colour = "green" if one.num_passed else "red"
        best = Text(ratio(one.best_speedup)) if one.best_speedup is not None else Text("-", "dim")
        name = Text(one_line(one.name, limit=80))
        table.add_row(name, str(one.num_judged), Text(str(one.num_passed), colour), best)
    yield table
    if len(summary.problems) > MOST_PROBLEMS:
        yield Text(f"and {len(summary.problems) - MOST_PROBLEMS} more", "dim")


def _small_print(summary: Summary) -> Iterator[Text]:
    if summary.exploits:
        classes = ", ".join(f"{one_line(name, limit=60)} {count}" for name, count in summary.exploits.items())
        yield Text(f"exploits by class: {classes}", "magenta")
    stages = list(summary.stage_seconds.items())[:6]
    if stages:
        told = ", ".join(f"{one_line(name, limit=30)} {value:.2f}" for name, value in stages)
        yield Text(f"judging took, seconds a verdict: {told}", "dim")
    if "modeled" in summary.timing_sources:
        yield Text("Times are modelled by a roofline, not measured; they are for development only.", "cyan")
    if summary.num_elsewhere:
        yield Text(f"{summary.num_elsewhere} more verdicts in the folder are not of this input.", "dim")
