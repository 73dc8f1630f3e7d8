"""Horizontal bars that survive without colour and without Unicode."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style

EIGHTHS = " ▏▎▍▌▋▊▉"
"""Partial blocks: index n is n eighths of a cell."""


class Bar:
    """A bar that fills `share` (0 to 1, clipped) of the width that it is given.

    With `track` the rest is drawn too, for shares of a whole; without it only the bar is, for comparing lengths. What
    is above zero never draws as nothing.
    """

    def __init__(self, share: float, *, style: str, track: bool = False) -> None:
        self.share = min(max(share, 0.0), 1.0)
        self.style = style
        self.track = track

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """One line of segments as wide as `options.max_width`."""
        yield from self._segments(console, options.max_width, ascii_only=options.ascii_only)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """At least eight cells, at most all there are."""
        return Measurement(min(8, options.max_width), options.max_width)

    def _segments(self, console: Console, width: int, *, ascii_only: bool) -> Iterator[Segment]:
        eighths = max(round(self.share * width * 8), 1 if self.share > 0 else 0)
        whole, part = divmod(eighths, 8)
        if ascii_only:
            whole, part = (max(whole, 1) if self.share > 0 else 0), 0
        filled = ("#" if ascii_only else "█") * whole + (EIGHTHS[part] if part else "")
        yield Segment(filled, console.get_style(self.style))
        rest = width - len(filled)
        yield Segment(("." if ascii_only else "·") * rest, Style(dim=True)) if self.track else Segment(" " * rest)
