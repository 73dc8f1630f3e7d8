"""Searches beside a benchmark as a terminal shows them: a column a strategy, a row a figure; and what it all cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kerneldojo.cli.pieces import correct_label, figure_text, open_table
from kerneldojo.cli.text import counted, short_ratio
from kerneldojo.report import Cost, Metrics, SearchFigures

AT_ONCE = 3
"""Strategies side by side; more have a table of their own below."""


def search_tables(metrics: Metrics) -> Iterator[RenderableType]:
    """What each strategy reached; nothing where there were no searches."""
    num_searches = len(metrics.searches)
    num_tables = math.ceil(num_searches / AT_ONCE)
    width = math.ceil(num_searches / num_tables) if num_tables else 1
    for start in range(0, num_searches, width):
        yield Text()
        yield _table(metrics.searches[start : start + width], is_timed=bool(metrics.timing_sources))
    if metrics.searches:
        first = metrics.searches[0]
        words = f"Searches of {counted(first.problems, 'problem')}; what they found was judged again after the choice."
        yield Text(words, "dim")


def cost_words(cost: Cost) -> str:
    """`48 answers, 43,200 prompt and 19,776 generated tokens, $0.12`."""
    parts = [counted(cost.calls, "answer"), counted(cost.verdicts, "verdict")]
    if cost.prompt_tokens or cost.answer_tokens:
        parts.append(f"{cost.prompt_tokens:,} prompt and {cost.answer_tokens:,} generated tokens")
    else:
        parts.append("no tokens counted")
    if cost.dollars:
        parts.append(f"${cost.dollars:,.2f}" if cost.dollars >= 1 else f"${cost.dollars:.2g}")
    return ", ".join(parts)


def _table(searches: Sequence[SearchFigures], *, is_timed: bool) -> Table:
    table = open_table()
    table.add_column("searches\nper problem", no_wrap=True)
    for one in searches:
        table.add_column(f"{one.strategy}\n{one.budget.words}", justify="right")
    figures = searches[0].figures
    labels = {"correct": correct_label([one.p for one in figures]), "speedup mean": "speedup, failures 0"}
    for number, first in enumerate(figures):
        if first.p != 0 and (is_timed or first.name == "correct"):
            label = f"fast at {first.p:g}×" if first.name == "fast" else labels[first.name]
            table.add_row(label, *(figure_text(one.figures[number]) for one in searches))
    if is_timed:
        table.add_row("best confirmed", *(short_ratio(one.best) if one.best else "-" for one in searches))
    return table
