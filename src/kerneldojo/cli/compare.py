"""`dojo compare RUN_A RUN_B`: is B better than A, on which problems, and how sure is that?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kerneldojo.cli.arguments import AsJson, ended_by, mendable, named
from kerneldojo.cli.streams import console_for, own_standard_output, print_json


def compare_command(
    a: Annotated[Path, typer.Argument(metavar="RUN_A", help="A run folder.")],
    b: Annotated[Path, typer.Argument(metavar="RUN_B", help="Another, over the same problems.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Also write an HTML page here.", metavar="FILE.html", parser=named)
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also where verdicts are of different devices, protocols or baselines.")
    ] = False,
    at_least: Annotated[bool, typer.Option("--at-least", help="fast_p asks for at least p, not more than p.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Compare two runs problem by problem, with a paired bootstrap over the problems that both have.

    Runs that were judged on different devices, under different protocols or against different baselines are refused,
    unless --anyway is given; in what the runs differ is told.
    """
    from kerneldojo.report import MetricsConfig, NotComparable, compare, read_run, sampling_of, write_comparison
    from kerneldojo.rollout import RunError

    config = MetricsConfig(strictly=not at_least, seed=seed)
    with own_standard_output() as output:
        with mendable(NotComparable, RunError, OSError):
            found = compare(
                read_run(a),
                read_run(b),
                names=(str(a), str(b)),
                config=config,
                anyway=anyway,
                sampling=(sampling_of(a), sampling_of(b)),
            )
        if out is not None:
            try:
                write_comparison(out, found)
            except OSError as error:
                raise ended_by(error, f"cannot write {out}: {error.strerror}") from error
        if as_json:
            print_json(found, output)
            return
        from kerneldojo.cli.compare_panel import comparison_panel

        console_for(output).print(comparison_panel(found))
        if out is not None:
            console_for(output).print(f"page: {out}", soft_wrap=True)
