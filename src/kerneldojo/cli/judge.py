"""`dojo judge REFERENCE.py KERNEL.py`: one problem, one candidate, one verdict."""

from __future__ import annotations

import sys
import traceback
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from kerneldojo.cli.arguments import AsJson, BadUsage, Device, candidate_seconds, read_source, require_judge
from kerneldojo.cli.streams import console_for, own_standard_output, print_json
from kerneldojo.cli.text import one_line
from kerneldojo.schema import Candidate, Evaluation, Problem, Status

EXIT_CODES = {Status.INVALID_PROBLEM: 2, Status.INFRASTRUCTURE_ERROR: 3}
"""Exit codes of the verdicts that do not speak of the candidate; every other one is 0."""


def judge_command(
    reference: Annotated[
        Path, typer.Argument(metavar="REFERENCE.py", help="Defines Model, get_inputs, get_init_inputs.")
    ],
    kernel: Annotated[Path, typer.Argument(metavar="KERNEL.py", help="Defines ModelNew.")],
    device: Device = "auto",
    language: Annotated[
        Literal["auto", "triton", "cuda"], typer.Option(help="What the kernel is written in.")
    ] = "auto",
    baseline: Annotated[Literal["eager", "compile"], typer.Option(help="What the speedup is against.")] = "eager",
    protocol: Annotated[
        Literal["quick", "standard", "strict"], typer.Option(help="2, 5 or 10 rounds, and trials to match.")
    ] = "standard",
    precision: Annotated[
        Literal["tf32", "ieee"], typer.Option(help="Class of arithmetic that float32 problems allow.")
    ] = "tf32",
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", help="Seconds for the candidate.", callback=candidate_seconds, metavar="SECONDS"),
    ] = None,
    allow_degenerate: Annotated[
        bool, typer.Option("--allow-degenerate", help="Judge a problem that fails its audit, and say so.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Judge one kernel against its reference.

    Exit code 0 whenever a verdict on the candidate was reached, whatever it is; 2 for bad usage and for a problem that
    cannot be judged; 3 if the judge itself failed.
    """
    problem = Problem(name=reference.stem, source=read_source(reference))
    candidate = Candidate(source=read_source(kernel), language=language)
    settings: dict[str, Any] = {
        "device": device,
        "protocol": protocol,
        "baseline": baseline,
        "precision": precision,
        "timeout": timeout,
        "allow_degenerate": allow_degenerate,
    }
    with own_standard_output() as output:
        evaluation = evaluate(problem, candidate, settings, waiting=not as_json)
        if as_json:
            print_json(evaluation, output)
        else:
            from kerneldojo.cli.panel import panel

            console_for(output).print(panel(evaluation, title=f"{kernel.name} for {reference.name}"))
    raise typer.Exit(EXIT_CODES.get(evaluation.status, 0))


def evaluate(problem: Problem, candidate: Candidate, settings: dict[str, Any], *, waiting: bool = False) -> Evaluation:
    """Call the judge; a fault of ours becomes an `infrastructure_error` with its traceback on standard error.

    `waiting` shows a spinner on standard error if that is a terminal.

    Raises:
        BadUsage: for a device that does not exist here, or one that nobody knows.
    """
    require_judge()
    console = Console(stderr=True, markup=False)
    spinner = console.status("judging ...") if waiting and console.is_terminal else nullcontext()
    with spinner:
        try:
            from kerneldojo.devices import DeviceError, parse

            try:
                parse(settings["device"])  # First, and apart: whatever else is a ValueError is a fault of ours.
                from kerneldojo.judging import judge

                return judge(problem, candidate, **settings)
            except DeviceError as error:
                raise BadUsage(str(error)) from error
        except BadUsage:
            raise
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            return Evaluation(
                status=Status.INFRASTRUCTURE_ERROR,
                message=f"the judge failed: {one_line(f'{type(error).__name__}: {error}')}",
                device=settings["device"],
                problem_hash=problem.hash,
                candidate_hash=candidate.hash,
            )
