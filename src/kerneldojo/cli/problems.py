"""`dojo problems`: what there is to judge kernels for, and whether a problem is worth judging for."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich import box
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from kerneldojo.cli.arguments import BadUsage, Device, require_judge
from kerneldojo.cli.streams import console_for, own_standard_output
from kerneldojo.cli.text import harmless, one_line
from kerneldojo.schema import Problem

if TYPE_CHECKING:
    from kerneldojo.problems.audit import AuditReport

commands = typer.Typer(help="List, show and audit problems.", no_args_is_help=False)

Size = Annotated[
    Literal["small", "full"],
    typer.Option(help="Katas come small (for cpu and model: devices) and full (for a GPU)."),
]
Suite = Annotated[
    str,
    typer.Option(
        help="katas[:LEVEL[/NAME]], graphs:SET[/NAME] or kernelbench:FOLDER[:LEVEL[/NUMBER]].", metavar="SUITE"
    ),
]

VERDICTS = {"admitted": "green", "degenerate": "red", "invalid": "yellow"}


@contextmanager
def problem_errors() -> Generator[None]:
    """Turn what the problems' room says of a user's mistake into bad usage."""
    from kerneldojo.problems import ProblemError

    try:
        yield
    except ProblemError as error:
        raise BadUsage(str(error)) from error


@commands.command("list")
def list_command(suite: Suite = "katas", size: Size = "small") -> None:
    """List the problems of a suite."""
    from kerneldojo.problems import load_suite, problem_id

    with problem_errors():
        problems = load_suite(suite, size)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("problem", no_wrap=True)
    table.add_column("what it is", overflow="fold")
    for problem in problems:
        table.add_row(Text(one_line(problem_id(problem))), Text(one_line(problem.notes)))
    console = console_for(sys.stdout)
    console.print(table)
    console.print(f"{len(problems)} problems")


@commands.command("show")
def show_command(
    name: Annotated[str, typer.Argument(help="A problem of the suite, or a whole specification (katas:1/sum_rows).")],
    suite: Suite = "katas",
    size: Size = "small",
) -> None:
    """Print the source of one problem; into a file or a pipe it goes exactly as it is."""
    problem = find(name, suite, size)
    console = console_for(sys.stdout)
    if not console.is_terminal:
        sys.stdout.write(problem.source)
        return
    console.print(Text(one_line(f"{problem.name}: {problem.notes}" if problem.notes else problem.name), "bold"))
    source = harmless(problem.source, limit=len(problem.source))
    console.print(Syntax(source, "python", theme="ansi_dark", background_color="default", word_wrap=True))


def find(name: str, suite: str, size: Literal["small", "full"]) -> Problem:
    """The problem that a user calls `name`: a specification of its own, or a name, `LEVEL/NAME` or number in `suite`.

    Raises:
        BadUsage: if there is none, or more than one.
    """
    from kerneldojo.problems import load_suite, problem_id

    with problem_errors():
        if ":" in name:
            found = load_suite(name, size)
        else:
            found = [
                problem
                for problem in load_suite(suite, size)
                if name in (problem.name, problem_id(problem), problem.name.partition("_")[0])
            ]
            exact = [problem for problem in found if name in (problem.name, problem_id(problem))]
            found = exact or found
    if not found:
        raise BadUsage(f"no problem {name!r} in {suite} (see `dojo problems list`)")
    if len(found) > 1:
        raise BadUsage(f"{name!r} means {len(found)} problems: {', '.join(map(problem_id, found[:4]))}, ...")
    return found[0]


@commands.command("audit")
def audit_command(
    what: Annotated[
        str, typer.Argument(metavar="[SUITE|FILE.py]", help="A suite, as in --suite, or one file.")
    ] = "katas",
    size: Size = "small",
    device: Device = "auto",
) -> None:
    """Say which problems are worth judging kernels for, and which trivial answers the others accept.

    Exit code 1 if one is not admitted.
    """
    from kerneldojo.problems import load_suite, problem_from_file

    with problem_errors():
        problems = [problem_from_file(what)] if Path(what).suffix == ".py" else load_suite(what, size)
    require_judge()
    with own_standard_output() as output:
        reports = audit_all(problems, device)
        console_for(output).print(audit_table(reports))
    raise typer.Exit(0 if all(report.admitted for _, report in reports) else 1)


def audit_all(problems: list[Problem], device: str) -> list[tuple[Problem, AuditReport]]:
    """Audit one problem after the other, with a progress bar on standard error.

    Raises:
        BadUsage: for a device that is not there.
    """
    from kerneldojo.devices import DeviceError
    from kerneldojo.judging import audit_problem

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    reports: list[tuple[Problem, AuditReport]] = []
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=len(problems))
        for problem in problems:
            progress.update(task, description=f"auditing {one_line(problem.name, limit=40)}")
            try:
                reports.append((problem, audit_problem(problem, device)))
            except DeviceError as error:
                raise BadUsage(str(error)) from error
            progress.advance(task)
    return reports


def audit_table(reports: list[tuple[Problem, AuditReport]]) -> RenderableType:
    """One row a problem: admitted or not, why, and what was settled for the judge."""
    from kerneldojo.problems import problem_id

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), expand=True)
    table.add_column("problem", no_wrap=True, overflow="ellipsis", max_width=36)
    table.add_column("audit", no_wrap=True)
    table.add_column("why, or how it is judged", ratio=1, overflow="fold")
    table.add_column("s", justify="right", no_wrap=True)
    for problem, report in reports:
        settled = f"{report.mode} mode, {report.oracle} oracle, inputs: {', '.join(report.deciding)}"
        words = one_line(settled if report.admitted else report.reason)
        verdict = Text(report.status, VERDICTS[report.status])
        table.add_row(Text(one_line(problem_id(problem))), verdict, Text(words), f"{report.seconds:.1f}")
    counts = [f"{sum(report.status == status for _, report in reports)} {status}" for status in VERDICTS]
    return Group(table, Text(", ".join(counts)))
