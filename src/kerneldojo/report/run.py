"""What is computed from a run folder, and written beside its episodes; also while the run goes on.

    metrics.json       every figure, as `Metrics`
    turns.parquet      one row a turn, where pyarrow is installed
    report.html        the page

Verdicts against torch.compile and searches of the same problems are taken into account where the folder holds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kerneldojo.files import write_whole
from kerneldojo.report.metrics import Metrics, MetricsConfig, measure
from kerneldojo.report.page import write_report
from kerneldojo.rollout import Manifest, RunError, RunFolder, write_table
from kerneldojo.rollout.against_compile import AGAINST_COMPILE, read_verdicts
from kerneldojo.schema import Episode
from kerneldojo.search import record

METRICS, PAGE = "metrics.json", "report.html"


def read_run(run: Path) -> list[Episode]:
    """The episodes of a run folder.

    Raises:
        RunError: it is none, or is damaged.
    """
    folder = RunFolder(run)
    if folder.manifest() is None:
        has_results = (run / "results.jsonl").is_file()
        why = "it holds results of `dojo evaluate`" if has_results else "it has no manifest.json"
        raise RunError(f"{run} is no run folder, which `dojo bench` and `dojo collect` write: {why}")
    return list(folder.episodes())


def sampling_of(run: Path) -> Mapping[str, object]:
    """How answers were drawn: temperature and the like; nothing where its folder does not tell.

    Raises:
        RunError: the folder is damaged.
    """
    manifest = RunFolder(run).manifest()
    return {} if manifest is None else manifest.settings.get("sampling", {})


def write_all(run: Path, episodes: Sequence[Episode], config: MetricsConfig) -> Metrics:
    """Write everything that is computed from a run's episodes; each file is replaced in one piece.

    Raises:
        RunError: what lies beside the episodes is damaged, or a file cannot be written.
    """
    try:
        searches = list(record.read(run / record.SEARCHES))
    except ValueError as error:
        raise RunError(str(error)) from error
    against_compile = run / AGAINST_COMPILE
    verdicts = read_verdicts(against_compile) if against_compile.exists() else None
    manifest = RunFolder(run).manifest()
    metrics = measure(
        episodes, config, against_compile=verdicts, searches=searches, planned=manifest and _planned(manifest)
    )
    try:
        write_whole(run / METRICS, metrics.model_dump_json(indent=1).encode())
        write_table(episodes, run)
        title = f"{policy_of(episodes)} on {suites_of(episodes)}"
        write_report(run / PAGE, episodes, metrics, title=title, about=about(run, episodes))
    except (OSError, RunError) as error:
        raise RunError(f"cannot write into {run}: {error}") from error
    return metrics


def _planned(manifest: Manifest) -> int | None:
    """How many episodes a run was asked for."""
    num_samples = manifest.settings.get("num_samples")
    return num_samples * len(manifest.problems) if isinstance(num_samples, int) else None


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
