"""`dojo report RUN`: take a run's figures again and write its page, wherever the run came from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kerneldojo.cli.arguments import mendable
from kerneldojo.cli.streams import console_for, own_standard_output

if TYPE_CHECKING:
    from kerneldojo.report import Metrics


def report_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    at_least: Annotated[bool, typer.Option("--at-least", help="fast_p asks for at least p, not more than p.")] = False,
    credited: Annotated[
        bool, typer.Option("--credited", help="A measured speedup whose interval contains 1 counts as 1.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
) -> None:
    """Write metrics.json, turns.parquet and report.html of a run, also while it goes on."""
    from kerneldojo.report import MetricsConfig, read_run, write_all
    from kerneldojo.rollout import RunError

    with own_standard_output() as output:
        config = MetricsConfig(strictly=not at_least, credited=credited, seed=seed)
        with mendable(RunError):
            metrics = write_all(run, read_run(run), config)
        show(run, metrics, output)


def show(run: Path, metrics: Metrics, output: object) -> None:
    """Print the panel and where the files lie."""
    from typing import TextIO, cast

    from kerneldojo.cli.bench_panel import bench_panel
    from kerneldojo.report.run import METRICS, PAGE

    console = console_for(cast("TextIO", output))
    console.print(bench_panel(metrics, title=run.name))
    console.print(f"report:  {run / PAGE}", soft_wrap=True)
    console.print(f"figures: {run / METRICS}", soft_wrap=True)
