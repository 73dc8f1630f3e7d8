"""`dojo evaluate FOLDER|JSONL`: judge many candidates, once each, and lose none of the verdicts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kerneldojo.cli.arguments import (
    AsJson,
    BadUsage,
    Cache,
    candidate_seconds,
    device_name,
    ended_by,
    folder_to_write,
    mendable,
)
from kerneldojo.cli.judges import open_executor
from kerneldojo.cli.stopping import INTERRUPTED, stopping
from kerneldojo.cli.streams import console_for, own_standard_output, print_json, say
from kerneldojo.cli.text import one_line
from kerneldojo.devices import problem_size

if TYPE_CHECKING:
    from kerneldojo.evaluate import Item, Settings, Summary
    from kerneldojo.pool import Executor
    from kerneldojo.schema import Problem

MOST_TOLD = 20
"""Entries that cannot be judged are told one by one up to here, where they stop the command."""


def _device_names(values: list[str] | None) -> list[str]:
    return [device_name(value) for value in values or ["auto"]]


def evaluate_command(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER|JSONL",
            help="NAME/reference.py with NAME/*.py beside it, files named after problems of --suite, or JSON lines "
            '{"problem": NAME or SOURCE, "candidate": SOURCE, "id"?, "name"?, "language"?, "entry_point"?}.',
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            help="Folder of the results; a run that was stopped goes on.",
            metavar="FOLDER",
            parser=folder_to_write,
        ),
    ],
    suite: Annotated[
        list[str] | None,
        typer.Option(
            "--suite",
            help="Where named problems are found: katas[:LEVEL], graphs:SET or kernelbench:FOLDER[:LEVEL]; may be "
            "repeated.",
            metavar="SUITE",
        ),
    ] = None,
    size: Annotated[Literal["small", "full"] | None, typer.Option(help="Size of katas and graphs.")] = None,
    device: Annotated[
        list[str] | None,
        typer.Option(help="auto, cpu, cuda (all GPUs), cuda:N or model:GPU; several GPUs may be named."),
    ] = None,
    language: Annotated[
        Literal["auto", "triton", "cuda"], typer.Option(help="Of candidates that do not say it.")
    ] = "auto",
    protocol: Annotated[
        Literal["quick", "standard", "strict"], typer.Option(help="2, 5 or 10 rounds, and trials to match.")
    ] = "standard",
    baseline: Annotated[Literal["eager", "compile"], typer.Option(help="What speedups are against.")] = "eager",
    precision: Annotated[
        Literal["tf32", "ieee"], typer.Option(help="Class of arithmetic that float32 problems allow.")
    ] = "tf32",
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", help="Seconds that a candidate has.", callback=candidate_seconds, metavar="SECONDS"),
    ] = None,
    allow_degenerate: Annotated[
        bool, typer.Option("--allow-degenerate", help="Judge problems that fail their audit, and say so.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Judge equal candidates apart, and take no verdict from a cache.")
    ] = False,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out what cannot be judged instead of judging nothing.")
    ] = False,
    url: Annotated[str | None, typer.Option(help="Judge at this service instead of on this machine.")] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the service's token; else KERNELDOJO_TOKEN is read.")
    ] = None,
    slots: Annotated[int | None, typer.Option(min=1, help="Candidates judged at once on this machine.")] = None,
    cache: Cache = None,
    as_json: AsJson = False,
) -> None:
    """Judge many candidates and write results.jsonl and (with pyarrow) results.parquet.

    Each verdict is on disk before it is counted. Starting the same command again judges what has none yet. Ctrl-C lets
    what runs finish; a second one does not. Exit code 2 for bad usage and bad entries, 3 if faults of ours left
    candidates without a verdict, 130 if it was stopped.
    """
    from pydantic import ValidationError

    from kerneldojo.evaluate import Settings, can_write_table
    from kerneldojo.rollout import RunError

    devices = _device_names(device)
    named = _problems(suite or [], size or problem_size(devices[0], is_here=url is None))
    with own_standard_output() as output:
        items = _read(path, named, language, skip_bad=skip_bad)
        options: dict[str, Any] = {"protocol": protocol, "baseline": baseline, "precision": precision}
        options |= {"timeout": timeout, "allow_degenerate": allow_degenerate}
        try:
            executor = open_executor(url, token_file, devices, slots, cache)
            is_orderly = False
            try:
                settings = Settings(device=_settle(devices, executor), **options)
                summary, was_stopped = _run(items, settings, executor, out, fresh=fresh)
                is_orderly = True
            finally:
                if is_orderly or url is not None:
                    executor.close(drain=False)  # Otherwise the pool is ended at once, as this process ends.
        except (RunError, ValidationError) as error:
            raise ended_by(error) from error
        if as_json:
            print_json(summary, output)
        else:
            from kerneldojo.cli.evaluate_panel import evaluate_panel

            console_for(output).print(evaluate_panel(summary, title=f"{path.name or path}"))
            console_for(output).print(f"results: {out}", soft_wrap=True)
        if not can_write_table():
            say("results.parquet was not written: it needs the extra, pip install 'kerneldojo[data]'")
    raise typer.Exit(_exit_code(summary, was_stopped=was_stopped))


def _exit_code(summary: Summary, *, was_stopped: bool) -> int:
    missing = summary.num_asked - summary.num_finished
    if was_stopped:
        say(f"stopped; start the same command again for the {missing} that are left")
        return INTERRUPTED
    if summary.num_faults:
        say(f"{missing} have no verdict for faults of ours (faults.jsonl); start the same command again to try them")
        return 3
    return 0


def _run(items: list[Item], settings: Settings, executor: Executor, out: Path, *, fresh: bool) -> tuple[Summary, bool]:
    from kerneldojo.cli.evaluate_panel import display_for
    from kerneldojo.evaluate import Results, can_write_table, judge_all, read_records, summarise, write_table
    from kerneldojo.evaluate.results import RESULTS, TABLE

    started = time.monotonic()
    with Results(out) as results:
        remaining = results.remaining(items, settings)
        with stopping() as stop, display_for(len(items), len(items) - len(remaining), executor) as display:
            num_judged = judge_all(
                remaining,
                settings,
                executor,
                results,
                fresh=fresh,
                stop=stop,
                on_verdict=lambda _, evaluation: display.judged(evaluation),
                on_tick=display.tick,
            )
    records = out / RESULTS
    if can_write_table():
        write_table(read_records(records), out / TABLE)
    summary = summarise(
        read_records(records),
        [item.id for item in items],
        num_judged_now=num_judged,
        num_faults=display.num_faults,
        seconds=time.monotonic() - started,
    )
    return summary, stop.is_set()


def _read(
    path: Path, suite: list[Problem], language: Literal["auto", "triton", "cuda"], *, skip_bad: bool
) -> list[Item]:
    from kerneldojo.evaluate import read_items

    if path.suffix == ".py" and path.is_file():
        raise BadUsage(f"{path} is one source, not a folder or JSON lines: `dojo judge REFERENCE.py {path}` judges it")
    try:
        items, bad = read_items(path, suite, language)
    except OSError as error:
        raise BadUsage(f"cannot read {path}: {error.strerror or error}") from error
    # What is skipped is told nowhere else. What stops the command is mended by its first lines.
    for entry in bad if skip_bad else bad[:MOST_TOLD]:
        say(one_line(str(entry)))
    if bad and not skip_bad:
        if len(bad) > MOST_TOLD:
            say(f"and {len(bad) - MOST_TOLD} more")
        advice = "; --skip-bad judges the others" if items else ""
        raise BadUsage(f"{len(bad)} of {len(bad) + len(items)} entries cannot be judged{advice}")
    if not items:
        raise BadUsage(f"{path}: nothing to judge")
    return items


def _problems(suite: list[str], size: Literal["small", "full"]) -> list[Problem]:
    from kerneldojo.problems import ProblemError, load_suite

    with mendable(ProblemError):
        return load_suite(suite, size)


def _settle(devices: list[str], executor: Executor) -> str:
    from kerneldojo.evaluate import settle_device

    with mendable(ValueError):
        return settle_device(devices, executor.devices())
