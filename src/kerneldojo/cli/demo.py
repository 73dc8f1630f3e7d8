"""`dojo demo`: a handful of sample kernels, judged on whatever this machine has, then a small benchmark.

The samples are files of the repository's `examples/` (also in the installed package), each with a first docstring line
that says what it is; the verdicts are the judge's own, on `cuda:0` where there is a GPU and on `model:h100` elsewhere.
"""

from __future__ import annotations

import ast
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

import kerneldojo
from kerneldojo.cli.arguments import BadUsage, Device, folder_to_write, read_source
from kerneldojo.cli.judge import EXIT_CODES, evaluate
from kerneldojo.cli.panel import badge, outcome
from kerneldojo.cli.streams import console_for, own_standard_output
from kerneldojo.cli.text import harmless, percent, ratio
from kerneldojo.schema import Candidate, Evaluation, Problem, Status
from kerneldojo.schema.parsing import parse_python

ORDER = ("honest", "lazy", "wrong", "decoy", "replay", "broken")
"""The samples in the order in which they tell a story; any other file of the folder comes after them."""


@dataclass(frozen=True)
class Sample:
    """One candidate of the demo."""

    name: str
    description: str
    candidate: Candidate


def demo_command(
    device: Device = "auto",
    samples: Annotated[
        Path | None, typer.Option("--samples", help="Folder with a reference.py and kernels.", metavar="FOLDER")
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            help="Where the runs of the benchmark and their reports go.",
            metavar="FOLDER",
            parser=folder_to_write,
        ),
    ] = Path("runs-out/demo"),
    only_samples: Annotated[bool, typer.Option("--only-samples", help="Stop after the sample kernels.")] = False,
) -> None:
    """Judge sample kernels, then play a small benchmark, and show what became of each."""
    folder = samples or find_samples()
    problem = Problem(name="demo", source=read_source(folder / "reference.py"))
    chosen = read_samples(folder)
    with own_standard_output() as output:
        results = judge_all(problem, chosen, {"device": device})
        console = console_for(output)
        console.print(table(results))
        if not only_samples:
            from kerneldojo.cli import demo_bench

            console.print("A benchmark: two policies that write kernels and read the judge's feedback.\n")
            demo_bench.show(demo_bench.play_all(out), console)
    raise typer.Exit(max(EXIT_CODES.get(evaluation.status, 0) for _, evaluation in results))


def find_samples() -> Path:
    """The folder with the samples: in the package where it was installed with them, else beside a source checkout.

    Raises:
        BadUsage: if there is none.
    """
    package = Path(kerneldojo.__file__).parent
    for folder in (package / "examples", package.parents[1] / "examples"):
        if (folder / "reference.py").is_file():
            return folder
    raise BadUsage("no sample kernels found: give their folder with --samples")


def read_samples(folder: Path) -> list[Sample]:
    """Every kernel of `folder`, in the order of the story.

    Raises:
        BadUsage: if there is none, or one cannot be read.
    """
    paths = [path for path in folder.glob("*.py") if path.name != "reference.py"]
    if not paths:
        raise BadUsage(f"no kernels in {folder}")
    paths.sort(key=lambda path: (ORDER.index(path.stem) if path.stem in ORDER else len(ORDER), path.name))
    return [_sample(path) for path in paths]


def _sample(path: Path) -> Sample:
    source = read_source(path)
    try:
        description = ast.get_docstring(parse_python(source)) or ""
    except (SyntaxError, ValueError):
        description = "(cannot be parsed)"
    return Sample(path.stem, description.partition("\n")[0], Candidate(source=source))


def judge_all(problem: Problem, samples: list[Sample], settings: dict[str, Any]) -> list[tuple[Sample, Evaluation]]:
    """Judge one sample after the other, with a progress bar on standard error."""
    console = Console(stderr=True)
    progress = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    results: list[tuple[Sample, Evaluation]] = []
    with progress:
        task = progress.add_task("starting", total=len(samples))
        for sample in samples:
            progress.update(task, description=f"judging {sample.name}")
            results.append((sample, evaluate(problem, sample.candidate, settings)))
            progress.advance(task)
    return results


def table(results: list[tuple[Sample, Evaluation]]) -> RenderableType:
    """The closing table: what each sample is, the verdict on it, its speedup and why."""
    grid = Table(box=box.SIMPLE_HEAD, expand=True, padding=(0, 1), show_lines=False, row_styles=[""])
    grid.add_column("sample", no_wrap=True, style="bold")
    grid.add_column("what it is, and what became of it", ratio=1)
    grid.add_column("verdict", no_wrap=True)
    grid.add_column("speedup", justify="right", no_wrap=True)
    for sample, evaluation in results:
        words = Group(Text(harmless(sample.description, limit=200)), Text(outcome(evaluation), "dim"), Text())
        grid.add_row(Text(sample.name), words, badge(evaluation.status), Text(_speedup(evaluation)))
    return Group(grid, *_footnotes([evaluation for _, evaluation in results]))


def _speedup(evaluation: Evaluation) -> str:
    if evaluation.speedup is None:
        return "-"
    lines = [ratio(evaluation.speedup), "modelled" if evaluation.timing.source == "modeled" else "measured"]
    if evaluation.coverage is not None:
        lines.append(f"{percent(evaluation.coverage)} own")
    return "\n".join(lines)


def _footnotes(evaluations: list[Evaluation]) -> Iterator[Text]:
    devices = sorted({evaluation.device for evaluation in evaluations if evaluation.device})
    yield Text(f"Judged on {', '.join(harmless(device, limit=80) for device in devices) or 'no device'}.")
    if any(evaluation.timing.source == "modeled" for evaluation in evaluations):
        yield Text("Modelled speedups come from a roofline, not from a clock; they are for development only.")
    if any(evaluation.status is Status.PASSED for evaluation in evaluations):
        yield Text("own: share of device time spent in kernels that the candidate itself brought.")
    yield Text(f"One in full: {_dojo()} judge examples/reference.py examples/honest.py")


def _dojo() -> str:
    """The command as it can be typed here: its path if no plain `dojo` would be found."""
    return "dojo" if shutil.which("dojo") or not sys.argv[0].endswith("dojo") else harmless(sys.argv[0], limit=200)
