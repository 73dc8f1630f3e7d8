"""From what trials leave on disk to tables, data and plots: on made-up trials with a known effect, and with none."""

from __future__ import annotations

import csv
import json
import lzma
import shutil
from pathlib import Path

import analysis
import numpy as np
import pytest
from proof import plots
from proof.figures import cells, difference
from proof.tables import Row, read_rows, write_json, write_rows

SHARES = {"trloo-n4": 0.5, "grpo-n4": 0.2, "pr-prs": 0.4, "pr": 0.4}


def trial(folder: Path, arm: str, seed: int) -> None:
    """A trial whose answers are fast by chance, more or less often on each problem."""
    place = folder / "results" / arm / f"seed-{seed}"
    problems = np.random.default_rng(5).uniform(-0.15, 0.15, 30)
    generator = np.random.default_rng([list(SHARES).index(arm), seed])
    rows: list[Row] = []
    for number, extra in enumerate(problems):
        for way, samples in (("greedy", 1), ("t=1", 4)):
            for sample in range(samples):
                for turn in range(3 if arm.endswith("n4") else 1):
                    fast = bool(generator.random() < SHARES[arm] + extra)
                    speedup = 1.5 if fast else 0.9
                    one = Row(
                        arm=arm,
                        seed=seed,
                        way=way,
                        problem=f"p{number}",
                        sample=sample,
                        turn=turn,
                        status="passed",
                        correct=True,
                        speedup=speedup,
                        coverage=0.8,
                    )
                    rows.append(one)
    write_rows(place / "rows.csv", rows)
    lines = [{"step": step, "reward": 1.0, "correct": 0.5, "fast_1.2": 0.1 * step, "exploits": 0.0} for step in (1, 2)]
    (place / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    machine = {"processor": "a processor", "cores": 2, "commit": "abc", "versions": {"torch": "2"}}
    write_json(place / "done.json", {"arm": arm, "seed": seed, "machine": machine})


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("experiment")
    for arm in SHARES:
        for seed in range(8):
            trial(folder, arm, seed)
    return folder


def test_an_effect_is_found_and_none_is_not(experiment: Path, tmp_path: Path) -> None:
    assert analysis.main([str(experiment), "--out", str(tmp_path)]) == 0
    with (tmp_path / "differences.csv").open(newline="") as file:
        found = {(row["comparison"], row["measure"], row["way"]): row for row in csv.DictReader(file)}
    effect = found["TRLOO over GRPO, N = 4", "fast@1.2", "t=1"]
    assert effect["primary"] == "1" and effect["seeds"] == "8" and effect["problems"] == "30"
    assert 0.2 < float(effect["low"]) < 0.3 < float(effect["high"]) < 0.4
    training = found["TRLOO over GRPO, N = 4", "fast@1.2 in training", "t=1"]
    assert float(training["value"]) == 0 and training["problems"] == "2"
    none = found["with PRS over without", "fast@1.2", "t=1"]
    assert float(none["low"]) < 0 < float(none["high"])
    assert found["TRLOO over GRPO, N = 4", "fast@1.2", "greedy"]["primary"] == "0"
    text = (tmp_path / "README.md").read_text()
    assert "32 trials, 8 seeds an arm" in text and "| TRLOO over GRPO, N = 4 |" in text
    with lzma.open(tmp_path / "rows.csv.xz", "rt") as file:
        assert len(file.readlines()) == 1 + 8 * 30 * 5 * (3 + 3 + 1 + 1)


def test_turns_of_an_episode_are_told_apart(experiment: Path) -> None:
    rows = read_rows(experiment / "results" / "trloo-n4" / "seed-0" / "rows.csv")
    first, last, best = (cells(rows, "fast@1.2", way="t=1", turn=turn) for turn in ("first", "last", "best"))
    assert first != last and all(best[key] >= max(first[key], last[key]) for key in first)
    assert len(first) == 30


def test_a_verdict_about_the_problem_leaves_its_episode_out(experiment: Path) -> None:
    rows = read_rows(experiment / "results" / "pr" / "seed-0" / "rows.csv")
    spoiled = [
        row.model_copy(update={"status": "invalid_problem", "correct": False, "speedup": None})
        if row.problem == "p3"
        else row
        for row in rows
    ]
    whole, left = (cells(some, "fast@1.2", way="t=1", turn="last") for some in (rows, spoiled))
    assert set(whole) - set(left) == {(0, "p3")}
    matrix, seeds, problems = difference(whole, left)
    assert matrix.shape == (1, 29) and seeds == [0] and "p3" not in problems


@pytest.mark.skipif(not plots.is_possible(), reason="needs matplotlib")
def test_plots_are_drawn(experiment: Path, tmp_path: Path) -> None:
    analysis.main([str(experiment), "--out", str(tmp_path)])
    names = {path.name for path in tmp_path.glob("*.png")}
    assert names == {"forest.png", "curves-estimators-n4.png", "curves-rejection.png"}


def test_an_empty_folder_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no finished trial"):
        analysis.main([str(tmp_path)])


def test_what_has_another_corpus_or_scale_is_not_joined(experiment: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(experiment, copy)
    for file, mine, theirs in (
        ("scale.json", {"steps": 20}, {"steps": 10}),
        ("collected/done.json", {"digest": "a", "one turn": {}}, {"digest": "b", "one turn": {}}),
    ):
        for folder, content in ((experiment, mine), (copy, mine)):
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_text(json.dumps(content))
        analysis.Results([experiment, copy])
        (copy / file).write_text(json.dumps(theirs))
        with pytest.raises(SystemExit, match="cannot be joined"):
            analysis.Results([experiment, copy])
        for folder in (experiment, copy):
            (folder / file).unlink()
