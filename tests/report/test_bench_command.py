"""`dojo bench`, `report` and `compare` as a user runs them, with the real judge on a modelled device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from plays import episode, run
from rich.console import Console

from kerneldojo.cli.arguments import BadUsage
from kerneldojo.cli.bench_panel import bench_panel, comparison_panel
from kerneldojo.cli.selecting import numbers, select
from kerneldojo.report import Metrics, MetricsConfig, compare, measure
from kerneldojo.schema import Problem


def dojo(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kerneldojo.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"COLUMNS": "100", "OMP_NUM_THREADS": "1"},
        check=False,
    )


def test_a_benchmark_from_the_command_to_the_page(tmp_path: Path) -> None:
    out = tmp_path / "run"
    order = ["bench", "--suite", "katas:1", "--ids", "hard_tanh", "--policy", "teacher", "--samples", "2"]
    order += ["--turns", "1", "--device", "model:h100", "--protocol", "quick", "--out", str(out)]
    first = dojo(*order)
    assert first.returncode == 0, first.stderr
    assert "fast at 1.2×" in first.stdout
    assert "report.html" in first.stdout
    metrics = Metrics.model_validate_json((out / "metrics.json").read_text())
    assert (metrics.counts.problems, metrics.counts.samples, metrics.counts.masked_turns) == (1, 2, 0)
    assert metrics.timing_sources in ((), ("modeled",))
    assert (out / "report.html").stat().st_size > 10_000
    assert (out / "turns.parquet").exists()
    kept = (out / "episodes.jsonl").read_bytes()
    assert dojo(*order).returncode == 0  # resumed: nothing is left to play
    assert (out / "episodes.jsonl").read_bytes() == kept
    paired = dojo("compare", out, out, "--json", "--out", tmp_path / "c.html")
    assert json.loads(paired.stdout)["wins"] == {"a": 0, "b": 0, "tie": 1}
    assert (tmp_path / "c.html").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "nowhere", "nowhere"], "no run folder"),
        (["bench", "--suite", "nothing", "--policy", "teacher", "--out", "x"], "unknown suite"),
        (["bench", "--suite", "katas:1", "--subset", "5-1", "--policy", "teacher", "--out", "x"], "--subset"),
        (["bench", "--suite", "katas:1", "--strategy", "zigzag", "--policy", "teacher", "--out", "x"], "zigzag"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], words: str) -> None:
    done = dojo(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_subsets_and_ids() -> None:
    names = ["1_Matmul", "2_Softmax", "14_Conv"]
    problems = [Problem(name=name, source="", suite="kernelbench", level=level) for level in (1, 2) for name in names]
    assert numbers("1-3,14") == {1, 2, 3, 14}
    assert [(one.level, one.name) for one in select(problems, "14", [])] == [(1, "14_Conv"), (2, "14_Conv")]
    assert [(one.level, one.name) for one in select(problems, None, ["2/1", "2_Softmax"])] == [
        (1, "2_Softmax"),
        (2, "1_Matmul"),
        (2, "2_Softmax"),
    ]
    katas = [Problem(name=name, source="", suite="katas", level=1) for name in "abc"]
    assert [one.name for one in select(katas, "2-9", [])] == ["b", "c"]
    for subset, ids in (("7", []), ("x", []), (None, ["nothing"])):
        with pytest.raises(BadUsage):
            select(katas, subset, ids)


@pytest.mark.parametrize("width", [80, 120])
def test_panels_show_what_was_measured(width: int) -> None:
    console = Console(record=True, width=width, file=StringIO())
    episodes = [*run(5, 2, 2), episode("masked", 0, ["failed"])]
    console.print(bench_panel(measure(episodes, MetricsConfig(num_draws=200)), title="[red]a\x1b[2Jrun"))
    paired = compare(run(5, 2, 2), run(5, 2, 2, boost=2.0), config=MetricsConfig(num_draws=200))
    console.print(comparison_panel(paired))
    text = console.export_text()
    for words in ("[red]a\\x1b[2Jrun", "policy failed (masked)", "modelled", "A better on 0, B on", "best@2"):
        assert words in text, words
    assert "…" not in text  # nothing is cut
