"""A benchmark as a terminal shows it: the headline figures with their intervals, then where answers ended."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from kerneldojo.cli.bars import Bar
from kerneldojo.cli.pieces import framed, with_interval
from kerneldojo.cli.text import one_line, percent, ratio
from kerneldojo.report import Comparison, Figure, Metrics

COLOURS = {"passed": "green", "exploit": "magenta", "incorrect": "red", "no_code": "red"}
MASKED = ("policy_failed", "unsupported_on_device", "invalid_problem", "infrastructure_error")


def bench_panel(metrics: Metrics, *, title: str) -> RenderableType:
    """What a terminal shows for a run."""
    return framed(_sections(metrics), title=title)


def _sections(metrics: Metrics) -> Iterator[RenderableType]:
    counts = metrics.counts
    yield Text(
        f"{counts.problems} problems, {counts.samples} samples each, {counts.turns_each} turns each; "
        f"{counts.turns} turns played"
    )
    for against in dict.fromkeys(figure.against for figure in metrics.figures):
        yield Text()
        yield _headline(metrics, against)
    yield Text()
    yield from _outcomes(metrics)
    yield from _small_print(metrics)


def _headline(metrics: Metrics, against: str) -> Table:
    n = metrics.counts.samples
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), expand=True)
    name = "compile" if against == "compile" else "eager"
    table.add_column(f"against {name}", no_wrap=True)
    for heading in ("last turn\nper sample", "best turn\nper sample", f"best@{n}\nper problem"):
        table.add_column(heading, justify="right", no_wrap=True)
    measures: list[tuple[str, str, float | None, str | None]] = [("correct", "correct", None, None)]
    measures += [(f"fast at {p:g}×", "fast", p, None) for p in metrics.config.thresholds if p > 0]
    measures += [
        ("mean, failures 0", "speedup mean", None, "zero"),
        ("geometric, correct", "speedup geometric", None, "left out"),
    ]
    for label, measure, p, failures in measures:
        cells: list[Text] = []
        for turn, unit, aggregate in (
            ("last turn", "sample", "all"),
            ("best of history", "sample", "all"),
            ("best of history", "problem", "best"),
        ):
            k = n if aggregate == "best" else None
            figure = metrics.find(
                measure,
                turn=turn,
                unit=unit,
                aggregate=aggregate,
                k=k,
                p=p,
                failures=failures,
                against="compile" if against == "compile" else "eager",
            )
            cells.append(figure_text(figure))
        table.add_row(label, *cells)
    return table


def figure_text(figure: Figure | None) -> Text:
    """`47%  31–62`: the figure and its 95 % interval; a dash where there is no such figure."""
    if figure is None or figure.value is None:
        return Text("-", "dim")
    show = ratio if figure.name.startswith("speedup") else percent
    return with_interval(figure.value, figure.low, figure.high, show)


def _outcomes(metrics: Metrics) -> Iterator[RenderableType]:
    if not metrics.statuses:
        return
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    table.add_column(justify="right", no_wrap=True)
    for one in metrics.statuses:
        colour = "yellow" if one.name in MASKED else COLOURS.get(one.name, "red")
        words = one.name.replace("_", " ") + (" (masked)" if one.name in MASKED else "")
        table.add_row(Text(words), Bar(one.share, style=colour, track=True), f"{one.count}  {percent(one.share)}")
    yield table
    if metrics.exploits:
        classes = ", ".join(f"{one_line(one.name, limit=60)} {one.count}" for one in metrics.exploits)
        yield Text(f"exploits by class: {classes}", "magenta")


def _small_print(metrics: Metrics) -> Iterator[Text]:
    yield Text()
    words = "more than" if metrics.config.strictly else "at least"
    yield Text(
        f"fast at p: correct and {words} p times as fast. Ranges: 95 %, bootstrap over problems. "
        "The best turn and best@k are chosen by the verdicts that they report.",
        "dim",
    )
    if metrics.counts.masked_turns:
        yield Text(f"{metrics.counts.masked_turns} turns are masked (no fault of the policy) and in no figure.", "dim")
    if "modeled" in metrics.timing_sources:
        yield Text("Times are modelled by a roofline, not measured; they are for development only.", "cyan")
    if not metrics.timing_sources:
        yield Text("Nothing was timed on this device, so there are no speedups.", "dim")


def comparison_panel(comparison: Comparison) -> RenderableType:
    """What a terminal shows for two runs."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), expand=True)
    for heading in ("per problem, avg@n", "turn", "A", "B", "B - A", "95 %"):
        table.add_column(heading, justify="left" if heading in ("per problem, avg@n", "turn") else "right")
    for one in comparison.differences:
        is_speed = one.name.startswith("speedup")
        show = ratio if is_speed else percent
        colour = ("green" if one.difference > 0 else "red") if one.is_clear else ""
        label = f"{one.name}, failures 0" if is_speed else one.name.replace("_", " at ")
        table.add_row(
            label,
            Text(one.turn, "dim"),
            show(one.a),
            show(one.b),
            Text(_signed(one.difference, is_speed), f"bold {colour}".strip()),
            Text(f"{_signed(one.low, is_speed)} to {_signed(one.high, is_speed)}", "dim"),
        )
    wins = comparison.wins
    tally = f"A better on {wins['a']}, B on {wins['b']}, {wins['tie']} alike"
    lines = [
        Text(f"A: {one_line(comparison.a)}    B: {one_line(comparison.b)}"),
        Text(f"{len(comparison.problems)} shared problems: {tally}"),
    ]
    lines += [
        Text(f"left out: {len(names)} problems {why}", "yellow")
        for names, why in (
            (comparison.only_a, "only in A"),
            (comparison.only_b, "only in B"),
            (comparison.changed, "whose sources differ"),
        )
        if names
    ]
    return Panel(Group(*lines, Text(), table), title="two runs", title_align="left", box=box.ROUNDED, padding=(0, 1))


def _signed(value: float, is_speed: bool) -> str:
    return f"{value:+.3g}×" if is_speed else f"{100 * value:+.1f} points"
