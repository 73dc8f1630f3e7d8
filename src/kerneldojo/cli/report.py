"""`dojo report RUN`: take a run's figures again and write its page, wherever the run came from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kerneldojo.cli.arguments import BadUsage
from kerneldojo.cli.streams import console_for, own_standard_output

if TYPE_CHECKING:
    from kerneldojo.report import Metrics, MetricsConfig
    from kerneldojo.schema import Episode, Evaluation

METRICS, TABLE, PAGE = "metrics.json", "turns.parquet", "report.html"
AGAINST_COMPILE, SEARCHES = "against-compile.jsonl", "searches.jsonl"


def report_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    at_least: Annotated[bool, typer.Option("--at-least", help="fast_p asks for at least p, not more than p.")] = False,
    credited: Annotated[
        bool, typer.Option("--credited", help="A measured speedup whose interval contains 1 counts as 1.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
) -> None:
    """Write metrics.json, turns.parquet and report.html of a run, also while it goes on."""
    from kerneldojo.report import MetricsConfig

    with own_standard_output() as output:
        episodes = read_run(run)
        metrics = write_all(run, episodes, MetricsConfig(strictly=not at_least, credited=credited, seed=seed))
        show(run, metrics, output)


def read_run(run: Path) -> list[Episode]:
    """The episodes of a run folder.

    Raises:
        BadUsage: it is none, or is damaged.
    """
    from kerneldojo.rollout import RunError, RunFolder

    try:
        folder = RunFolder(run)
        if folder.manifest() is None:
            raise BadUsage(f"{run} is no run folder: it has no manifest.json")
        return list(folder.episodes())
    except RunError as error:
        raise BadUsage(str(error)) from error


def write_all(run: Path, episodes: Sequence[Episode], config: MetricsConfig) -> Metrics:
    """Write everything that is computed from a run's episodes; each file is replaced in one piece.

    Raises:
        BadUsage: a file cannot be written.
    """
    from importlib.util import find_spec

    from kerneldojo.report import measure, write_report
    from kerneldojo.rollout import RunError, export
    from kerneldojo.search import record

    try:
        searches = list(record.read(run / SEARCHES))
    except ValueError as error:
        raise BadUsage(str(error)) from error
    verdicts = read_verdicts(run / AGAINST_COMPILE)
    metrics = measure(episodes, config, against_compile=verdicts, searches=searches)
    try:
        temporary = run / f".{METRICS}"
        temporary.write_text(metrics.model_dump_json(indent=1), encoding="utf-8")
        temporary.replace(run / METRICS)
        if find_spec("pyarrow") is not None:
            export(episodes, run / TABLE)
        title = f"{policy_of(episodes)} on {suites_of(episodes)}"
        write_report(run / PAGE, episodes, metrics, title=title, about=about(run, episodes))
    except (OSError, RunError) as error:
        raise BadUsage(f"cannot write into {run}: {error}") from error
    return metrics


def show(run: Path, metrics: Metrics, output: object) -> None:
    """Print the panel and where the files lie."""
    from typing import TextIO, cast

    from kerneldojo.cli.bench_panel import bench_panel

    console = console_for(cast("TextIO", output))
    console.print(bench_panel(metrics, title=run.name))
    console.print(f"report:  {run / PAGE}", soft_wrap=True)
    console.print(f"figures: {run / METRICS}", soft_wrap=True)


def policy_of(episodes: Sequence[Episode]) -> str:
    """Names of the policies of a run."""
    return ", ".join(sorted({episode.policy for episode in episodes if episode.policy})) or "a policy"


def suites_of(episodes: Sequence[Episode]) -> str:
    """Names of the suites of a run, with their levels."""
    found = {
        problem.suite if problem.level is None else f"{problem.suite} level {problem.level}"
        for problem in (episode.problem for episode in episodes)
    }
    return ", ".join(sorted(found)) or "no problems"


def about(run: Path, episodes: Sequence[Episode]) -> dict[str, str]:
    """What a reader should know of a run before its figures."""
    from kerneldojo.rollout import RunFolder

    verdicts = [turn.evaluation for episode in episodes for turn in episode.turns if turn.evaluation is not None]
    facts = {
        "run": run.resolve().name,
        "device": ", ".join(sorted({verdict.device for verdict in verdicts if verdict.device})),
        "language": ", ".join(sorted({episode.language for episode in episodes})),
        "protocol": ", ".join(
            sorted({f"{one.protocol.name} {one.protocol.version}" for one in verdicts if one.correct})
        ),
    }
    manifest = RunFolder(run).manifest()
    if manifest is not None:
        facts["seed"] = str(manifest.seed)
        facts["versions"] = ", ".join(f"{name} {number}" for name, number in manifest.versions.items())
    return {name: value for name, value in facts.items() if value}


def read_verdicts(path: Path) -> dict[tuple[str, str], Evaluation]:
    """Verdicts against another baseline, by problem and candidate; an unfinished last line is not one.

    Raises:
        BadUsage: another line is no verdict.
    """
    from pydantic import ValidationError

    from kerneldojo.schema import Evaluation

    if not path.exists():
        return {}
    lines = path.read_bytes().split(b"\n")[:-1]
    try:
        verdicts = [Evaluation.model_validate_json(line) for line in lines]
    except ValidationError as error:
        raise BadUsage(f"{path}: a line is no verdict") from error
    return {(verdict.problem_hash, verdict.candidate_hash): verdict for verdict in verdicts}
