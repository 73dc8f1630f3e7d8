"""`dojo bench`, `report` and `compare` as a user runs them, with the real judge on a modelled device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from plays import episode, run
from rich.console import Console

from kerneldojo.cli.arguments import BadUsage
from kerneldojo.cli.bench_panel import bench_panel
from kerneldojo.cli.compare_panel import comparison_panel
from kerneldojo.cli.searching import plan, search_all
from kerneldojo.cli.selecting import numbers, select
from kerneldojo.cli.text import percent
from kerneldojo.episodes import PlayConfig
from kerneldojo.policies import Request
from kerneldojo.problems import load_suite
from kerneldojo.report import Metrics, MetricsConfig, compare, measure
from kerneldojo.schema import Answer, Problem
from kerneldojo.search import Budget, Spent
from kerneldojo.search.record import SearchRecord

FIVE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * 0 + 5)
def get_inputs():
    return [torch.randn(16, 64)]
def get_init_inputs():
    return []
"""


Dojo = Callable[..., subprocess.CompletedProcess[str]]
BENCH = ["bench", "--suite", "katas:1", "--policy", "teacher", "--out", "x"]


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


@pytest.fixture
def kernelbench(tmp_path: Path) -> Path:
    """A folder of one good problem, one that accepts a constant, and one that is not Python."""
    folder = tmp_path / "KB" / "level1"
    folder.mkdir(parents=True)
    (good,) = load_suite("katas:1/hard_tanh", "small")
    (folder / "19_Tanh.py").write_text(good.source)
    (folder / "20_Five.py").write_text(FIVE)
    (folder / "21_Broken.py").write_text("def broken(:\n")
    return folder.parent


def bench(folder: Path, out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    order = ["bench", "--suite", f"kernelbench:{folder}:1", "--policy", "teacher", "--samples", "1", "--turns", "2"]
    return dojo(*order, "--device", "model:h100", "--protocol", "quick", "--out", out, *more)


def test_what_is_no_problem_or_degenerate_is_left_out_said_and_not_tried_again(
    kernelbench: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    first = bench(kernelbench, out)
    assert first.returncode == 0, first.stderr
    (broken,) = first.stderr.splitlines()
    assert broken.startswith("dojo: 1 problem left out: level 1, 21_Broken.py: not Python")
    told = " ".join(first.stdout.replace("│", " ").split())  # once: what is in the panel is not said beside it
    assert "Left out for invalid problem: 1 answer to 1 problem; the first, kernelbench/1/20_Five: the problem" in told
    metrics = Metrics.model_validate_json((out / "metrics.json").read_text())
    assert (metrics.counts.problems, metrics.counts.turns, metrics.counts.masked_turns) == (2, 3, 1)
    assert [(one.first_problem, one.problems) for one in metrics.refusals] == [("kernelbench/1/20_Five", 1)]
    correct = metrics.find("correct")
    assert correct is not None and correct.count == 1  # The refused answer is no failure of the policy.
    kept = (out / "episodes.jsonl").read_bytes()
    again = bench(kernelbench, out)
    assert (again.returncode, again.stderr) == (0, first.stderr)
    assert (out / "episodes.jsonl").read_bytes() == kept
    assert not (out / "faults.jsonl").read_bytes()


def test_a_run_of_nothing_but_refusals_ends_with_1_and_judges_them_on_request(
    kernelbench: Path, tmp_path: Path
) -> None:
    alone = bench(kernelbench, tmp_path / "refused", "--subset", "20")
    assert alone.returncode == 1, alone.stderr
    assert alone.stderr.count("\n") == 1 and "degenerate" in alone.stderr  # Nobody asked for the broken one.
    judged = bench(kernelbench, tmp_path / "judged", "--ids", "20_Five", "--allow-degenerate")
    assert (judged.returncode, judged.stderr) == (0, "")


def test_a_language_that_the_device_lacks_is_no_fault_of_ours(kernelbench: Path, tmp_path: Path) -> None:
    done = bench(kernelbench, tmp_path / "run", "--ids", "19_Tanh", "--language", "cuda")
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("dojo: 1 answer to 1 problem left out, unsupported on device: ")
    assert done.stderr.count("\n") == 1


class Down:
    """A policy whose endpoint is not there."""

    name, gives_ids = "down", False

    async def answer(self, _: Request) -> Answer:
        return Answer(text="", finish="failed", error="nobody listens")

    async def close(self) -> None:
        pass


def test_searches_that_are_given_up_are_counted_and_made_by_the_next_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = plan(["serial", "parallel"], {"calls": 2}, load_suite("katas:1/hard_tanh", "small"), tmp_path, 0)
    never: Any = None  # no answer gets as far as a judge
    for _ in range(2):
        config = PlayConfig(device="cpu")
        assert search_all(asked, Down, never, config, seed=0, temperature=1.0, top_p=1.0) == 2
    told = capsys.readouterr().err
    assert "the serial search of hard_tanh was given up" in told and "nobody listens" in told
    assert not (tmp_path / "searches.jsonl").exists()


@pytest.mark.parametrize("asked", [("--ids", "21_Broken"), ("--subset", "21")])
def test_asking_for_what_is_no_problem_says_why(kernelbench: Path, tmp_path: Path, asked: tuple[str, str]) -> None:
    done = bench(kernelbench, tmp_path / "run", *asked)
    assert done.returncode == 2
    assert "level 1, 21_Broken.py: not Python" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_audit_refuses_what_is_no_problem_beside_the_others(kernelbench: Path) -> None:
    done = dojo("problems", "audit", "--suite", f"kernelbench:{kernelbench}:1", "--device", "cpu")
    assert done.returncode == 1, done.stderr
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip().startswith("1/")}
    assert "admitted" in rows["1/19_Tanh"] and "degenerate" in rows["1/20_Five"]
    assert "invalid" in rows["1/21_Broken"] and "not Python" in rows["1/21_Broken"]
    assert "3 problems: 1 admitted, 1 degenerate, 1 invalid" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "nowhere", "nowhere"], "no run folder"),
        (["bench", "--suite", "nothing", "--policy", "teacher", "--out", "x"], "unknown suite"),
        (["bench", "--suite", "katas:1", "--subset", "5-1", "--policy", "teacher", "--out", "x"], "--subset"),
        ([*BENCH, "--strategy", "zigzag"], "zigzag"),
        ([*BENCH, "--baseline", "compile", "--also-compile"], "leave one out"),
        ([*BENCH, "--context", "best:0"], "best:4"),
        ([*BENCH, "--tokens", "9"], "--tokens bounds the searches of --strategy"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], words: str, dojo_here: Dojo) -> None:
    done = dojo_here(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [["report"], ["compare"]])
def test_results_of_evaluate_are_called_so(command: list[str], tmp_path: Path, dojo_here: Dojo) -> None:
    (tmp_path / "results.jsonl").write_text("")
    done = dojo_here(*command, *[tmp_path] * (2 if command == ["compare"] else 1))
    assert done.returncode == 2
    assert "which `dojo bench` and `dojo collect` write: it holds results of `dojo evaluate`" in done.stderr


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
    episodes = [*run(5, 2, 2), episode("masked", 0, ["failed"]), episode("long", 0, [], finish="budget")]
    searches = [
        SearchRecord(
            strategy=strategy,
            policy="teacher",
            problem="a",
            problem_hash="a",
            seed=0,
            budget=Budget(calls=None, verdicts=12, tokens=20_000),
            spent=Spent(calls=2, verdicts=2, tokens=900, prompt_tokens=4_000, dollars=0.0123),
            speedups=(0.0, 1.37),
            speedup=1.37,
        )
        for strategy in ("serial", "parallel", "best-first", "16x8")
    ]
    metrics = measure(episodes, MetricsConfig(num_draws=200), against_compile={}, searches=searches, planned=99)
    console.print(bench_panel(metrics, title="[red]a\x1b[2Jrun"))
    paired = compare(run(5, 2, 2), run(5, 2, 2, boost=2.0), config=MetricsConfig(num_draws=200))
    console.print(comparison_panel(paired))
    text = console.export_text()
    for words in ("[red]a\\x1b[2Jrun", "policy failed (masked)", "modelled", "A better on 0, B on", "best@2"):
        assert words in text, words
    flat = " ".join(text.replace("│", " ").split())
    exploits = metrics.exploits[0]
    for words in (
        "correct, fast at 0×",
        "1 sample of 1 problem never began, since the first prompt does not fit: failures in every figure",
        "0 were judged against torch.compile",
        "Not finished: 12 of 99 episodes have ended.",
        "avg@2 and best@2 are over 5 of 7 problems: the others have fewer samples that were scored.",
        "20,000 tokens",
        "best confirmed 1.37× 1.37×",
        f"no_causal_kernel {exploits.count} ({percent(exploits.share)})",
        "8 answers, 8 verdicts, 16,000 prompt and 3,600 generated tokens, $0.049",
    ):
        assert words in flat, words
    assert "…" not in text  # nothing is cut
