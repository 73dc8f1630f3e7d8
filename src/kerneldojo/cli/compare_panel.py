"""Two runs side by side as a terminal shows them: what they have in common, then each figure and its difference."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kerneldojo.cli.pieces import correct_label, framed, open_table
from kerneldojo.cli.text import counted, one_line, percent, ratio
from kerneldojo.report import Comparison


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
            (comparison.unscored, "of which one run has masked answers alone"),
        )
        if names
    ]
    for one in comparison.unlike:
        if one.is_of_verdicts:
            words = f"Different {one.setting}, {one.a} (A) and {one.b} (B): the figures are not of one kind."
            lines.append(Text(one_line(words), "bold yellow"))
    others = [one.words for one in comparison.unlike if not one.is_of_verdicts]
    if others:
        also = "also " if len(others) < len(comparison.unlike) else ""
        lines.append(Text(one_line(f"They {also}differ in {', '.join(others)}."), "yellow"))
    note = (
        "Means over problems of avg@n. Ranges: 95 %, paired bootstrap over problems, and what problems that are all "
        "alike do not exclude; coloured where they leave 0 out."
    )
    sections = (*lines, Text(), _differences(comparison), Text(), Text(note, "dim"))
    return framed(sections, title="two runs", colour="cyan")


def _differences(comparison: Comparison) -> Table:
    """A row a figure, headed by the turn that it is of."""
    table = open_table()
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
        if one.low is not None and one.high is not None:
            change.append(f"  {_signed(one.low, is_speed)} to {_signed(one.high, is_speed)}", "dim")
        change.append("×" if is_speed else " points", "dim")
        table.add_row(f"  {_label(one.name)}", show(one.a), show(one.b), change)
    return table


def _label(name: str) -> str:
    """`fast at 1.2×` for `fast_1.2`; of a mean of speedups, what failures count as."""
    if name == "correct":
        return correct_label((0,))
    threshold = name.removeprefix("fast_")
    return f"fast at {threshold}×" if threshold != name else f"{name}, failures 0" if "speedup" in name else name


def _signed(value: float, is_speed: bool) -> str:
    """With its sign, without its unit; what rounds to nothing has no sign."""
    digits = 2 if is_speed else 1
    rounded = round(value if is_speed else 100 * value, digits) + 0.0
    return f"{rounded:+.{digits}f}" if rounded else f"{0:.{digits}f}"
