"""`dojo problems`: what there is to judge kernels for, and whether a problem is worth judging for."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich import box
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from kerneldojo.cli.arguments import BadUsage, Device, mendable, read_source, require_judge, seconds
from kerneldojo.cli.streams import console_for, own_standard_output, say
from kerneldojo.cli.text import counted, harmless, one_line
from kerneldojo.schema import Problem

if TYPE_CHECKING:
    from kerneldojo.judging.audit_file import AuditFile, Finding, Limits
    from kerneldojo.problems import Refused

commands = typer.Typer(help="List, show and audit problems.", no_args_is_help=False)

Size = Annotated[
    Literal["small", "full"],
    typer.Option(help="Katas come small (for cpu and model: devices) and full (for a GPU)."),
]
Suite = Annotated[
    str,
    typer.Option(
        "--suite",
        help="katas[:LEVEL[/NAME]], graphs:SET[/NAME] or kernelbench:FOLDER_OR_PARQUET[:LEVEL[/NUMBER]].",
        metavar="SUITE",
    ),
]

VERDICTS = {
    "admitted": "green",
    "degenerate": "red",
    "invalid": "yellow",
    "too large": "cyan",
    "too slow": "cyan",
    "failed": "magenta",
}


@commands.command("list")
def list_command(suite: Suite = "katas", size: Size = "small") -> None:
    """List the problems of a suite."""
    from kerneldojo.problems import ProblemError, load_suite, problem_id

    with mendable(ProblemError):
        problems = load_suite(suite, size)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("problem", no_wrap=True)
    table.add_column("what it is", overflow="fold")
    for problem in problems:
        table.add_row(Text(one_line(problem_id(problem))), Text(one_line(problem.notes)))
    console = console_for(sys.stdout)
    console.print(table)
    console.print(counted(len(problems), "problem"))


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
    from kerneldojo.problems import ProblemError, load_suite, problem_id, problem_names

    with mendable(ProblemError):
        if ":" in name:
            found = load_suite(name, size)
        else:
            found = [problem for problem in load_suite(suite, size) if name in problem_names(problem)]
            exact = [problem for problem in found if name in (problem.name, problem_id(problem))]
            found = exact or found
    if not found:
        raise BadUsage(f"no problem {name!r} in {suite} (see `dojo problems list`)")
    if len(found) > 1:
        named = [problem_id(problem) for problem in found[:4]] + (["..."] if len(found) > 4 else [])
        raise BadUsage(f"{name!r} means {len(found)} problems: {', '.join(named)}")
    return found[0]


@commands.command("audit")
def audit_command(
    what: Annotated[
        list[str] | None, typer.Argument(metavar="[SUITE|FILE.py]...", help="Suites, as in --suite, or files.")
    ] = None,
    suite: Suite = "katas",
    size: Size = "small",
    device: Device = "auto",
    out: Annotated[
        Path | None,
        typer.Option(help="File that keeps every finding as it is made; the same command goes on where it was."),
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option("--seconds", help="Longest time for one problem.", callback=seconds)
    ] = None,
    memory_gb: Annotated[
        float | None, typer.Option(help="GiB that each process of an audit may have of its own.", min=2.0)
    ] = None,
    at_once: Annotated[
        int | None, typer.Option(help="Audits side by side; by default one for each GPU.", min=1, max=64)
    ] = None,
    refused: Annotated[bool, typer.Option("--refused", help="Show only what is not admitted.")] = False,
) -> None:
    """Say which problems are worth judging kernels for, and why the others are not.

    A problem that this machine has no time or memory for is told apart from one that is no good. Exit code 1 if one is
    not admitted.
    """
    from kerneldojo.devices import DeviceError, parse
    from kerneldojo.problems import ProblemError, load_suite

    no_problems: list[Refused] = []
    problems: list[Problem] = []
    with mendable(ProblemError):
        for one in what or [suite]:
            if Path(one).suffix != ".py":
                problems += load_suite(one, size, no_problems.append)
            elif (found := _in_file(Path(one), no_problems.append)) is not None:
                problems.append(found)
    require_judge()
    from kerneldojo.judging.audit_file import AuditFile, Finding, Limits

    try:
        parse(device)
        file = None if out is None else AuditFile(out)
    except (DeviceError, ValueError) as error:
        raise BadUsage(str(error)) from error
    with own_standard_output() as output:
        found = _audited(problems, device, Limits(seconds=max_seconds, memory_gb=memory_gb), file, at_once)
        invalid = [(one.problem, Finding(verdict="invalid", reason=one.reason)) for one in no_problems]
        console_for(output).print(audit_table([*found, *invalid], only_refused=refused))
    if len(found) < len(problems):
        say(f"stopped: {len(problems) - len(found)} problems have not been audited")
        raise typer.Exit(130)
    raise typer.Exit(0 if all(finding.verdict == "admitted" for _, finding in [*found, *invalid]) else 1)


def _in_file(path: Path, refuse: Callable[[Refused], None]) -> Problem | None:
    """The problem in a file; what is none is refused, so that the others are audited all the same.

    Raises:
        BadUsage: the file cannot be read.
    """
    from kerneldojo.problems import ProblemError, Refused, problem_from_file

    source = read_source(path)
    try:
        return problem_from_file(path)
    except ProblemError as error:
        refuse(Refused(Problem(name=path.stem, source=source), str(error)))
        return None


def _audited(
    problems: list[Problem], device: str, limits: Limits, file: AuditFile | None, at_once: int | None
) -> list[tuple[Problem, Finding]]:
    """Audit them with a progress bar on standard error."""
    from kerneldojo.judging.audit_runs import audit_all

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("starting", total=len(problems))
        done = itertools.count()

        def show(problem: Problem) -> None:
            progress.update(task, completed=next(done), description=f"auditing {one_line(problem.name, limit=40)}")

        return audit_all(problems, device, limits, file, show, at_once)


def audit_table(found: list[tuple[Problem, Finding]], *, only_refused: bool = False) -> RenderableType:
    """One row a problem: admitted or not, why, and what was settled for the judge."""
    from kerneldojo.problems import problem_id

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), expand=True)
    table.add_column("problem", no_wrap=True, overflow="ellipsis", max_width=28)
    table.add_column("audit", no_wrap=True)
    table.add_column("why, or how it is judged", ratio=1, overflow="fold")
    table.add_column("s", justify="right", no_wrap=True)
    for problem, finding in found:
        if finding.verdict == "admitted" and only_refused:
            continue
        verdict = Text(finding.verdict, VERDICTS[finding.verdict])
        table.add_row(Text(one_line(problem_id(problem))), verdict, Text(_why(finding)), f"{finding.seconds:.1f}")
    counts = [(sum(finding.verdict == verdict for _, finding in found), verdict) for verdict in VERDICTS]
    words = ", ".join(f"{count} {verdict}" for count, verdict in counts if count) or "none"
    return Group(table, Text(f"{counted(len(found), 'problem')}: {words}"))


def _why(finding: Finding) -> str:
    report = finding.report
    if finding.verdict != "admitted" or report is None:
        return one_line(finding.reason, limit=160)  # The file has all of it.
    settled = f"{report.mode} mode, {report.oracle} oracle, inputs: {', '.join(report.deciding)}"
    elsewhere = ", ".join(dict.fromkeys(answer.answer for answer in report.accepted_elsewhere))
    return one_line(f"{settled}; refused here, taken at 1e-2: {elsewhere}" if elsewhere else settled)
