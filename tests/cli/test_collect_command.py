"""`dojo collect` as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from dojo import dojo

from kerneldojo.problems import load_suite
from kerneldojo.rollout import RunFolder
from kerneldojo.schema import Answer, Episode, Turn


def test_a_collection_is_a_run_folder_and_a_table(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    suite = "katas:1/hard_tanh"
    (problem,) = load_suite(suite, "small")
    said = [f"I cannot do that, {number}." for number in range(2)]  # without code there is nothing to judge
    turns = tuple(Turn(index=index, answer=Answer(text=text)) for index, text in enumerate(said))
    recorded = tmp_path / "recorded.jsonl"
    recorded.write_text(Episode(id="a", problem=problem, turns=turns).model_dump_json(round_trip=True) + "\n")

    out = tmp_path / "run"
    asked = ["--suite", suite, "--device", "cpu", "--slots", "1", "--turns", "2", "-o", out]
    done = dojo("collect", f"replay:{recorded}", *asked)
    assert (done.returncode, done.stderr) == (0, f"dojo: 1 episode, 2 turns in {out}\ndojo: not parsed 2\n")
    lacking = dojo("collect", f"replay:{recorded}", *asked[:-1], tmp_path / "more", "--samples", "2")
    assert lacking.returncode == 3
    assert "not parsed 2, policy failed 1" in lacking.stderr
    assert "1 episode ended for want of an answer or a verdict; start the same command again" in lacking.stderr
    (episode,) = RunFolder(out).episodes()
    rows = parquet.read_table(out / "turns.parquet").to_pylist()
    assert [(row["episode"], row["turn"], row["answer"]) for row in rows] == [
        (episode.id, turn.index, turn.answer.text) for turn in episode.turns
    ]
