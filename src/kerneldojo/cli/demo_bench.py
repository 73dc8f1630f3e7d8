"""The benchmark at the end of the demo: two policies of known quality, on problems that neither has seen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from kerneldojo.cli.arguments import mendable
from kerneldojo.cli.text import percent, ratio
from kerneldojo.report import Figure, Metrics
from kerneldojo.report.run import PAGE
from kerneldojo.schema import Status

DEVICE = "model:h100"
SUITE = "graphs:validation"
POLICIES = ("teacher:mixture", "teacher:fused")
NUM_PROBLEMS, NUM_SAMPLES, NUM_TURNS = 8, 2, 2


@dataclass(frozen=True)
class Result:
    """One policy's run."""

    policy: str
    folder: Path
    metrics: Metrics


def play_all(out: Path) -> list[Result]:
    """Play every policy through one pool; a run that was interrupted goes on where it stopped.

    Raises:
        BadUsage: `out` cannot be written, or holds runs of another version of this demo.
    """
    from kerneldojo.episodes import PlayConfig
    from kerneldojo.policies import open_policy
    from kerneldojo.pool import open_pool
    from kerneldojo.problems.suite import load_suite
    from kerneldojo.report import MetricsConfig, write_all
    from kerneldojo.rollout import RunFolder, play_run

    problems = load_suite(SUITE, size="small")[:NUM_PROBLEMS]
    config = PlayConfig(device=DEVICE, protocol="quick", num_turns=NUM_TURNS)
    pool = open_pool("local", [DEVICE])
    results: list[Result] = []
    try:
        for policy in POLICIES:
            folder = out / policy.replace(":", "-")
            with mendable(ValueError, ConnectionError):
                run = RunFolder(folder)
                episodes = play_run(problems, open_policy(policy), pool, config, run, num_samples=NUM_SAMPLES)
                metrics = write_all(folder, episodes, MetricsConfig())
            results.append(Result(policy, folder, metrics))
    finally:
        pool.close(drain=False)
    return results


def table(results: list[Result]) -> RenderableType:
    """Both policies side by side, first turn and last."""
    grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1), expand=True)
    grid.add_column("policy", no_wrap=True, style="bold")
    for heading in ("turn", "correct", "fast at 1.2×", "mean speedup", "cheating"):
        grid.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        find = result.metrics.find
        for turn, label in (("turn 1", "first"), ("last turn", "last")):
            last = label == "last"
            grid.add_row(
                Text("" if last else result.policy),
                Text(label),
                percent(_value(find("correct", turn=turn))),
                percent(_value(find("fast", turn=turn, p=1.2))),
                ratio(_value(find("speedup mean", turn=turn, failures="zero"))),
                f"{_num_exploits(result.metrics)} caught" if last else "",
            )
    counts = f"{NUM_PROBLEMS} problems of {SUITE}, {NUM_SAMPLES} samples each, {NUM_TURNS} turns, on {DEVICE}"
    return Group(grid, Text(f"{counts}. A failure has speedup 0. The reports have the intervals.", "dim"))


def _num_exploits(metrics: Metrics) -> int:
    return sum(one.count for one in metrics.statuses if one.name == Status.EXPLOIT)


def _value(figure: Figure | None) -> float:
    return float("nan") if figure is None or figure.value is None else figure.value


def show(results: list[Result], console: Console) -> None:
    """Print the table, and where the reports lie."""
    console.print(table(results))
    for result in results:
        console.print(f"report: {result.folder / PAGE}", soft_wrap=True)
