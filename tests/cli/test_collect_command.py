"""`dojo collect` as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from dojo import dojo

from kerneldojo.rollout import RunFolder


def test_a_collection_is_a_run_folder_and_a_table(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "run"
    asked = ["--suite", "katas:1/hard_tanh", "--device", "cpu", "--protocol", "quick", "--turns", "2", "-o", out]
    done = dojo("collect", "teacher:broken", *asked)
    assert done.returncode == 0, done.stderr
    turns = [turn for episode in RunFolder(out).episodes() for turn in episode.turns]
    rows = parquet.read_table(out / "turns.parquet").to_pylist()
    assert [(row["turn"], row["code"]) for row in rows] == [
        (turn.index, turn.candidate.source if turn.candidate else None) for turn in turns
    ]
    assert [row["status"] for row in rows] == [turn.evaluation and turn.evaluation.status.value for turn in turns]
