"""A benchmark as a terminal shows it: the headline figures with their intervals, then where answers ended."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kerneldojo.cli.bars import Bar
from kerneldojo.cli.pieces import framed, with_interval
from kerneldojo.cli.text import counted, one_line, percent, ratio, short_ratio
from kerneldojo.report import Comparison, Figure, Metrics

COLOURS = {"passed": "green", "exploit": "magenta", "incorrect": "red", "no_code": "red"}
MASKED = ("policy_failed", "unsupported_on_device", "invalid_problem", "infrastructure_error")


def bench_panel(metrics: Metrics, *, title: str) -> RenderableType:
    """What a terminal shows for a run."""
    return framed(_sections(metrics), title=title)


def _sections(metrics: Metrics) -> Iterator[RenderableType]:
    counts = metrics.counts
    yield Text(
        f"{counted(counts.problems, 'problem')}, {counted(counts.samples, 'sample')} each, "
        f"{counted(counts.turns_each, 'turn')} each; {counted(counts.turns, 'turn')} played"
    )
    for against in dict.fromkeys(figure.against for figure in metrics.figures):
        yield Text()
        yield _headline(metrics, against)
    yield Text()
    yield from _outcomes(metrics)
    yield from _small_print(metrics)


def _headline(metrics: Metrics, against: str) -> Table:
    n = metrics.counts.samples
    table = _table()
    name = "compile" if against == "compile" else "eager"
    table.add_column(f"against {name}", no_wrap=True)
    for heading in ("last turn\nper sample", "best turn\nper sample", f"best@{n}\nper problem"):
        table.add_column(heading, justify="right", no_wrap=True)
    measures: list[tuple[str, str, float | None, str | None]] = [("correct", "correct", None, None)]
    measures += [(f"fast at {p:g}×", "fast", p, None) for p in metrics.config.thresholds if p > 0]
    measures += [
        ("speedup, failures 0", "speedup mean", None, "zero"),
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


def _table() -> Table:
    """An empty table without edges, for a frame that has its own."""
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False, expand=True)


def figure_text(figure: Figure | None) -> Text:
    """`47%  31–62`: the figure and its 95 % interval; a dash where there is no such figure."""
    if figure is None or figure.value is None:
        return Text("-", "dim")
    show = short_ratio if figure.name.startswith("speedup") else percent
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
        turns = counted(metrics.counts.masked_turns, "turn")
        yield Text(f"Masked and in no figure, for no verdict could be had on the answer: {turns}.", "dim")
    for one in metrics.refusals:
        answers = f"{counted(one.answers, 'answer')} to {counted(one.problems, 'problem')}"
        why = f"{one_line(one.first_problem, limit=80)}: {one_line(one.first_reason)}"
        yield Text(f"Left out for {one.status.replace('_', ' ')}: {answers}; the first, {why}", "yellow")
    if "modeled" in metrics.timing_sources:
        yield Text("Times are modelled by a roofline, not measured; they are for development only.", "cyan")
    if not metrics.timing_sources:
        yield Text("Nothing was timed on this device, so there are no speedups.", "dim")


def comparison_panel(comparison: Comparison) -> RenderableType:
    """What a terminal shows for two runs."""
    wins = comparison.wins
    tally = f"A better on {wins['a']}, B on {wins['b']}, {wins['tie']} alike"
    lines = [
        Text(f"A  {one_line(comparison.a)}\nB  {one_line(comparison.b)}"),
        Text(f"{counted(len(comparison.problems), 'shared problem')}: {tally}"),
    ]
    lines += [
        Text(f"left out: {counted(len(names), 'problem')} {why}", "yellow")
        for names, why in (
            (comparison.only_a, "only in A"),
            (comparison.only_b, "only in B"),
            (comparison.changed, "whose sources differ"),
        )
        if names
    ]
    note = (
        "Means over problems of avg@n. Ranges: 95 %, paired bootstrap over problems; coloured where they leave 0 out."
    )
    sections = (*lines, Text(), _differences(comparison), Text(), Text(note, "dim"))
    return framed(sections, title="two runs", colour="cyan")


def _differences(comparison: Comparison) -> Table:
    """A row a figure, headed by the turn that it is of."""
    table = _table()
    table.add_column("per problem", no_wrap=True)
    for heading in ("A", "B", "B − A"):
        table.add_column(heading, justify="right", no_wrap=True)
    last = ""
    for one in comparison.differences:
        if one.turn != last:
            table.add_row(Text(one.turn, "dim"))
            last = one.turn
        is_speed = one.name.startswith("speedup")
        show = ratio if is_speed else percent
        colour = ("green" if one.difference > 0 else "red") if one.is_clear else ""
        change = Text.assemble((_signed(one.difference, is_speed), f"bold {colour}".strip()))
        change.append(f"  {_signed(one.low, is_speed)} to {_signed(one.high, is_speed)}", "dim")
        change.append("×" if is_speed else " points", "dim")
        table.add_row(f"  {_label(one.name)}", show(one.a), show(one.b), change)
    return table


def _label(name: str) -> str:
    """`fast at 1.2×` for `fast_1.2`; of a mean of speedups, what failures count as."""
    threshold = name.removeprefix("fast_")
    return f"fast at {threshold}×" if threshold != name else f"{name}, failures 0" if "speedup" in name else name


def _signed(value: float, is_speed: bool) -> str:
    """With its sign, without its unit; what rounds to nothing has no sign."""
    digits = 2 if is_speed else 1
    rounded = round(value if is_speed else 100 * value, digits) + 0.0
    return f"{rounded:+.{digits}f}" if rounded else f"{0:.{digits}f}"
