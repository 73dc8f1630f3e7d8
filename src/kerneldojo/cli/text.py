"""Words and figures for the terminal; whatever a stranger wrote is made harmless here, once.

Messages, kernel names, notes and evidence may hold text that a candidate chose. A terminal obeys control characters
(it can be made to erase a verdict, to retitle its window or to type), and bidirectional or zero-width characters make
a line read as something that it is not. So every such text goes through `harmless`, and then only into
`rich.text.Text`, which never parses markup.
"""

from __future__ import annotations

import inspect

from kerneldojo.schema.figures import plain

MAX_CHARACTERS = 4000
"""Longest text that is shown; a longer one is cut, and the cut is said."""


def harmless(text: str, *, limit: int = MAX_CHARACTERS) -> str:
    """`text` in one or more lines, with everything but printable characters and newlines spelled out.

    Escapes look like Python's (`\\x1b`, `\\u202e`); a tab becomes four spaces. At most `limit` characters of the
    original are kept, and how many were cut is said.
    """
    kept = text[:limit].replace("\r\n", "\n").replace("\t", "    ")
    shown = "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in kept)
    return shown if len(text) <= limit else f"{shown} … ({len(text) - limit} characters more)"


def one_line(text: str, *, limit: int = 400) -> str:
    """`harmless` text with its lines joined by spaces, for table cells and error messages."""
    return " ".join(harmless(text, limit=limit).split())


def duration(milliseconds: float) -> str:
    """A time with its unit and three significant digits: `31.2 µs`, `1.07 ms`, `2.50 s`."""
    for scale, unit in ((1e-3, "s"), (1.0, "ms"), (1e3, "µs")):
        if milliseconds * scale >= 1 or unit == "µs":
            return f"{_three_digits(milliseconds * scale)} {unit}"
    raise AssertionError("unreachable")


def ratio(value: float) -> str:
    """A speedup: `1.83×`, `12.4×`, `0.0042×`."""
    return f"{_three_digits(value)}×"


def short_ratio(value: float) -> str:
    """A speedup for a table, with two decimals at most: `0.94×`, `12.4×`."""
    return f"{value:.2f}×" if value < 10 else ratio(value)


def magnitude(value: float) -> str:
    """An error in tolerances, which is 0.05 or some thousands: `0.062×`, `7,000×`."""
    return f"{plain(value)}×"


def unwrapped(docstring: str) -> str:
    """A docstring whose paragraphs are one line each, so that a terminal of any width breaks them by itself."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in inspect.cleandoc(docstring).split("\n\n"))


def counted(number: int, noun: str) -> str:
    """`1 problem`, `2 problems`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def percent(share: float) -> str:
    """A share of one in whole percent; a small one keeps a digit so that it does not read as zero."""
    return f"{share:.1%}" if 0 < share < 0.1 else f"{share:.0%}"


def _three_digits(value: float) -> str:
    """Three significant digits, never in scientific notation for what a person may meet."""
    if value >= 100:
        return f"{value:.0f}"
    if value >= 0.1:
        return f"{value:#.3g}"
    return f"{value:.2g}"
