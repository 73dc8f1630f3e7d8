"""What a person sees while a run goes on: curves that are drawn as it learns, and where the time goes.

On a terminal a live panel; elsewhere (a log file, CI) one plain line a step, so that nothing is lost by redirecting.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH = 32
"""Characters of a curve."""
PHASES = (
    ("generate", "cyan"),
    ("wait", "yellow"),
    ("score", "bright_blue"),
    ("update", "green"),
    ("evaluate", "magenta"),
)
"""What the policy's time goes into; `wait` is for verdicts, with nothing else to do."""


class Display:
    """Shows records as they come; a context."""

    def __init__(self, kind: str, subtitle: str, num_steps: int, *, enabled: bool = True) -> None:
        """`kind`: `sft` or `rl`. Not `enabled`: nothing is shown at all."""
        self.kind, self.subtitle, self.num_steps, self.enabled = kind, subtitle, num_steps, enabled
        self.console = Console(stderr=True, highlight=False)
        self.history: dict[str, deque[float]] = {}
        self.record: dict[str, Any] = {}
        self.evaluations: list[tuple[int, dict[str, Any]]] = []
        self.progress = 0.0
        self.notes: deque[str] = deque(maxlen=3)
        self._live: Live | None = None

    def __enter__(self) -> Display:
        if self.enabled and self.console.is_terminal:
            self._live = Live(self.picture(), console=self.console, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.update(self.picture())
            self._live.stop()

    def say(self, text: str) -> None:
        """A remark: in the panel, and on standard error where there is none."""
        self.notes.append(text)
        if self._live is not None:
            self._live.update(self.picture())
        elif self.enabled:
            print(text, file=sys.stderr, flush=True)

    def show_sft(self, record: Mapping[str, Any], progress: float) -> None:
        """A step of supervised training."""
        self._take(record, progress, ("loss", "grad_norm"))
        if "validation" in record:
            self._remember("validation loss", record["validation"]["loss"])
        every = max(1, self.num_steps // 40)
        is_told = record["step"] % every == 0 or "validation" in record or "skipped" in record
        if self._live is None and self.enabled and is_told:
            text = f"step {record['step']}: loss {record['loss']:.3f}"
            if "validation" in record:
                text += f", validation {record['validation']['loss']:.3f}"
            text += f", {record['seconds']['total']:.0f} s" + skipped(record)
            print(text, file=sys.stderr, flush=True)

    def show_rl(self, record: Mapping[str, Any], progress: float) -> None:
        """A step of RL."""
        self._take(record, progress, ("reward", "correct", "fast_1.2", "exploits", "answer_tokens", "kl", "entropy"))
        if self._live is None and self.enabled:
            seconds = ", ".join(f"{name} {record['seconds'].get(name, 0):.1f}" for name, _ in PHASES[:4])
            busy = judges_busy(record["seconds"])
            print(
                f"step {record['step']}: reward {record['reward']:.3f}, correct {record['correct']:.1%}, "
                f"fast@1.2 {record['fast_1.2']:.1%}, exploits {record['exploits']:.1%} ({seconds} s)"
                + (f", {busy}" if busy else "")
                + unscored(record)
                + skipped(record),
                file=sys.stderr,
                flush=True,
            )

    def show_evaluation(self, step: int, results: Mapping[str, Any]) -> None:
        """The result of a look at held-out problems."""
        self.evaluations.append((step, dict(results)))
        text = f"held out after step {step}: {held_out(results)}"
        if self._live is not None:
            self._live.update(self.picture())
        elif self.enabled:
            print(text, file=sys.stderr, flush=True)

    def _take(self, record: Mapping[str, Any], progress: float, names: tuple[str, ...]) -> None:
        self.record, self.progress = dict(record), progress
        for name in names:
            if isinstance(record.get(name), int | float):
                self._remember(name, record[name])
        if self._live is not None:
            self._live.update(self.picture())

    def _remember(self, name: str, value: float) -> None:
        # Sums of differences that are none leave 1e-15, which would be drawn like anything else.
        self.history.setdefault(name, deque(maxlen=4096)).append(round(value, 12))

    def picture(self) -> RenderableType:
        """The panel as it is now."""
        step = int(self.record.get("step", 0))
        head = Table.grid(expand=True, padding=(0, 1))
        head.add_column(no_wrap=True)
        head.add_column(ratio=1)
        head.add_row(Text(f"step {step}/{self.num_steps}", "bold"), ProgressBar(total=1.0, completed=self.progress))
        curves = Table.grid(padding=(0, 2))
        for _ in range(3):
            curves.add_column(no_wrap=True)
        for name, values in self.history.items():
            curves.add_row(
                Text(LABELS.get(name, name)), Text(curve(values), COLOURS.get(name, "white")), _last(name, values)
            )
        parts: list[RenderableType] = [head, Text(), curves]
        if "seconds" in self.record and self.kind == "rl":
            parts += [Text(), _times(self.record["seconds"])]
        for number, results in self.evaluations[-1:] + self.evaluations[:1] * (len(self.evaluations) > 1):
            parts.append(Text(f"held out after step {number}: {held_out(results)}", "bold magenta"))
        if unscored(self.record):
            parts.append(Text(unscored(self.record).removeprefix(", "), "red"))
        if self.record.get("skipped"):
            parts.append(Text(f"skipped: {self.record['skipped']}", "red"))
        parts += [Text(note, "red") for note in self.notes]
        return Panel(Group(*parts), title=f"dojo train {self.kind}", subtitle=Text(self.subtitle), border_style="cyan")


LABELS = {"fast_1.2": "fast@1.2", "answer_tokens": "tokens an answer", "kl": "KL moved", "grad_norm": "gradient norm"}
COLOURS = {"reward": "green", "correct": "cyan", "fast_1.2": "bold green", "exploits": "red", "loss": "yellow"}
SHARES = frozenset({"correct", "fast_1.2", "exploits"})


def curve(values: deque[float], width: int = WIDTH) -> str:
    """The last values as a line of blocks; each is the mean of its part, scaled from the least to the greatest.

    What is not finite has no height: it leaves a gap.
    """
    shown = list(values)
    parts = [
        shown[len(shown) * i // width : max(len(shown) * (i + 1) // width, len(shown) * i // width + 1)]
        for i in range(width)
    ]
    means = [sum(part) / len(part) for part in parts] if len(shown) >= width else shown
    heights = [mean for mean in means if math.isfinite(mean)]
    low, high = min(heights, default=0.0), max(heights, default=0.0)
    span = (high - low) or 1.0
    return "".join(
        BLOCKS[int((mean - low) / span * (len(BLOCKS) - 1))] if math.isfinite(mean) else " " for mean in means
    )


def held_out(results: Mapping[str, Any]) -> str:
    """An evaluation in a line."""
    return (
        f"correct {results['correct']:.1%}, fast@1 {results['fast_1']:.1%}, fast@1.2 {results['fast_1.2']:.1%}, "
        f"exploits {results['exploits']:.1%} of {results['num_samples']}"
    )


def _last(name: str, values: deque[float]) -> Text:
    return Text(f"{values[-1]:.1%}" if name in SHARES else f"{values[-1]:.4g}", "bold", justify="right")


def skipped(record: Mapping[str, Any]) -> str:
    """Why a step changed no weight, as the end of its line; empty where it did."""
    return f", skipped: {record['skipped']}" if record.get("skipped") else ""


def unscored(record: Mapping[str, Any]) -> str:
    """How many answers nothing is learned from, for a fault that is not theirs; empty where there are none. A judge
    that comes and goes would else look like a policy whose rewards do."""
    count = record.get("num_masked", 0)
    return f", {count} of {record['num_samples']} answers without a reward" if count else ""


def judges_busy(seconds: Mapping[str, float]) -> str:
    """How much of the judges' time went into verdicts; empty where that is not known."""
    return f"judges {seconds['judge_busy']:.0%} busy" if "judge_busy" in seconds else ""


def _times(seconds: Mapping[str, float]) -> Text:
    """Where the policy's time of the last step went, as a bar; and how busy the judges were."""
    shown = [(name, colour, seconds.get(name, 0.0)) for name, colour in PHASES]
    total = sum(value for _, _, value in shown) or 1.0
    line = Text()
    for _, colour, value in shown:
        line.append("█" * round(40 * value / total), colour)
    line.append("\n")
    for name, colour, value in shown:
        if value:
            line.append(f"{name} {value:.1f} s  ", colour)
    line.append(judges_busy(seconds), "bold")
    return line
