"""A rollout on a terminal: how far it is, how fast, and how well the policy does."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from kerneldojo.schema import Episode, Status


class Display:
    """Counts what is played, and draws it: a bar, and a line of facts under it."""

    def __init__(self, total: int, done: int) -> None:
        """Of `total` episodes, `done` are there from before."""
        self._bar = Progress(
            TextColumn("[bold]playing"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("episodes"),
            TimeElapsedColumn(),
            TextColumn("[dim]and"),
            TimeRemainingColumn(),
            TextColumn("[dim]left"),
            expand=True,
        )
        self._task = self._bar.add_task("", total=total, completed=done)
        self._started = time.monotonic()
        self.num_turns = self.num_correct = self.num_exploits = self.num_faults = self.num_refused = 0
        self.best_speedup = 0.0

    def played(self, episode: Episode) -> None:
        """A turn was played: the last of `episode`."""
        turn = episode.turns[-1]
        self.num_turns += 1
        self.num_faults += episode.finish == "fault"
        self.num_refused += episode.finish == "refused"
        if turn.evaluation is not None:
            self.num_correct += turn.is_correct
            self.num_exploits += turn.evaluation.status is Status.EXPLOIT
            self.best_speedup = max(self.best_speedup, turn.evaluation.speedup or 0.0)

    def ended(self, episode: Episode) -> None:
        """An episode ended and is on disk."""
        self._bar.advance(self._task)

    def facts(self) -> Text:
        """What was counted, in one line."""
        rate = self.num_turns / max(time.monotonic() - self._started, 1e-3)
        parts = [Text(f"        {self.num_turns} turns, {rate:.3g} a second")]
        if self.num_turns:
            parts.append(Text(f"{self.num_correct / self.num_turns:.0%} correct", "green"))
        if self.best_speedup:
            parts.append(Text(f"best {self.best_speedup:.2f}x", "cyan"))
        if self.num_exploits:
            parts.append(Text(f"{self.num_exploits} exploits", "magenta"))
        if self.num_refused:
            parts.append(Text(f"{self.num_refused} not to be judged", "yellow"))
        if self.num_faults:
            parts.append(Text(f"{self.num_faults} faults of ours", "yellow"))
        return Text(" · ").join(parts)

    def __rich__(self) -> RenderableType:
        return Group(self._bar, self.facts())


@contextmanager
def display_for(total: int, done: int, show: bool | None) -> Generator[Display]:
    """A display of `total` episodes, `done` of them from before; drawn if `show`, or if None and there is a terminal.

    It is drawn on standard error, and what it shows at the end stays there.
    """
    display = Display(total, done)
    if not (sys.stderr.isatty() if show is None else show):
        yield display
        return
    with Live(display, console=Console(stderr=True), refresh_per_second=5):
        yield display
