"""A benchmark as a terminal shows it: the headline figures with their intervals, then where answers ended."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kerneldojo.cli.bars import Bar
from kerneldojo.cli.pieces import correct_label, figure_text, framed, open_table
from kerneldojo.cli.search_panel import cost_words, search_tables
from kerneldojo.cli.text import counted, one_line, percent
from kerneldojo.report import AgainstCompile, Metrics

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
    if counts.num_missing:
        words = f"Not finished: {counts.episodes:,} of {counted(counts.planned_episodes or 0, 'episode')} have ended."
        yield Text(f"{words} The slow ones are among the others, so that figures may change.", "yellow")
    if metrics.counts.too_long_samples:
        samples = counted(counts.too_long_samples, "sample")
        problems = counted(counts.too_long_problems, "problem")
        words = f"{samples} of {problems} never began, since the first prompt does not fit: failures in every figure."
        yield Text(words, "yellow")
    if metrics.num_complete_problems < counts.problems:
        complete = f"{metrics.num_complete_problems:,} of {counted(counts.problems, 'problem')}"
        words = f"avg@{counts.samples} and best@{counts.samples} are over {complete}: the others have fewer samples"
        yield Text(f"{words} that were scored.", "yellow")
    for against in dict.fromkeys(figure.against for figure in metrics.figures):
        yield Text()
        yield _headline(metrics, against)
    if metrics.against_compile is not None and metrics.against_compile.is_partial:
        yield Text(_partial(metrics.against_compile), "yellow")
    yield from search_tables(metrics)
    yield Text()
    yield from _outcomes(metrics)
    yield from _small_print(metrics)


def _partial(part: AgainstCompile) -> str:
    """That verdicts against torch.compile are missing, and what follows."""
    passed = counted(part.passed, "answer")
    return (
        f"Not finished: of {passed} that passed, {part.judged:,} were judged against torch.compile. The others are "
        "left out and failures are not, so that figures against it are too low. Starting the benchmark again goes on."
    )


def _headline(metrics: Metrics, against: str) -> Table:
    n = metrics.counts.samples
    table = open_table()
    name = "compile" if against == "compile" else "eager"
    table.add_column(f"against {name}", no_wrap=True)
    for heading in ("last turn\nper sample", "best turn\nper sample", f"best@{n}\nper problem"):
        table.add_column(heading, justify="right", no_wrap=True)
    correct = correct_label(metrics.config.thresholds)
    measures: list[tuple[str, str, float | None, str | None]] = [(correct, "correct", None, None)]
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
        classes = (f"{one_line(one.name, limit=60)} {one.count} ({percent(one.share)})" for one in metrics.exploits)
        yield Text(f"exploits by class: {', '.join(classes)}", "magenta")


def _small_print(metrics: Metrics) -> Iterator[Text]:
    yield Text()
    yield Text(f"Cost: {cost_words(metrics.cost)}.")
    if metrics.search_cost is not None:
        yield Text(f"Cost of the searches: {cost_words(metrics.search_cost)}.")
    words = "more than" if metrics.config.strictly else "at least"
    yield Text(
        f"fast at p: correct and {words} p times as fast. Ranges: 95 %, bootstrap over problems, "
        "and what problems that are all alike do not exclude. "
        "The best turn and best@k are chosen by the verdicts that they report.",
        "dim",
    )
    if metrics.counts.masked_turns:
        turns = counted(metrics.counts.masked_turns, "turn")
        words = f"Masked and in no figure, for no verdict could be had on the answer: {turns}."
        yield Text(f"{words} Their shares are of all turns, the others' of those that were scored.", "dim")
    for one in metrics.refusals:
        answers = f"{counted(one.answers, 'answer')} to {counted(one.problems, 'problem')}"
        why = f"{one_line(one.first_problem, limit=80)}: {one_line(one.first_reason)}"
        yield Text(f"Left out for {one.status.replace('_', ' ')}: {answers}; the first, {why}", "yellow")
    if "modeled" in metrics.timing_sources:
        yield Text("Times are modelled by a roofline, not measured; they are for development only.", "cyan")
    if not metrics.timing_sources:
        yield Text("Nothing was timed, so there are no speedups.", "dim")
