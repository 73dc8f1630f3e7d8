"""Pieces of which several panels are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from kerneldojo.cli.text import one_line, percent, short_ratio

if TYPE_CHECKING:
    from kerneldojo.report import Figure


def framed(sections: Iterable[RenderableType], *, title: str, subtitle: str = "", colour: str = "cyan") -> Panel:
    """Sections one below the other in a frame; `title` and `subtitle` may hold any text."""
    return Panel(
        Group(*sections),
        title=Text(one_line(title, limit=100), style="bold") if title else None,
        title_align="left",
        subtitle=Text(one_line(subtitle, limit=100)) if subtitle else None,
        subtitle_align="right",
        border_style=colour,
        box=box.ROUNDED,
        padding=(0, 1),
    )


def with_interval(value: float, low: float | None, high: float | None, show: Callable[[float], str]) -> Text:
    """`47%  31–62`: a figure and its interval, if it has one; the unit is said once."""
    text = Text.assemble((show(value), "bold"))  # not the style of all of it, which what is appended would have too
    if low is not None and high is not None:
        ends = (show(end).removesuffix("×").removesuffix("%") for end in (low, high))
        text.append(f"  {'–'.join(ends)}", "dim")
    return text


def open_table() -> Table:
    """An empty table without edges, for a frame that has its own."""
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False, expand=True)


def figure_text(figure: Figure | None) -> Text:
    """`47%  31–62`: the figure and its 95 % interval; a dash where there is no such figure."""
    if figure is None or figure.value is None:
        return Text("-", "dim")
    show = short_ratio if figure.name.startswith("speedup") else percent
    return with_interval(figure.value, figure.low, figure.high, show)


def correct_label(thresholds: Sequence[float | None]) -> str:
    """What the row of correctness is called: being correct is being fast at 0."""
    return "correct, fast at 0×" if 0 in thresholds else "correct"
