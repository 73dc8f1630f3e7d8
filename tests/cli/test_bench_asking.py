"""What `dojo bench` makes of its options."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from kerneldojo.cli import commands
from kerneldojo.episodes import PlayConfig


class Enough(Exception):
    """What there is to see has been seen."""


def test_a_policy_can_be_asked_as_it_was_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Collecting asks for a plan, and small models are trained on compact prompts: others would be new to them."""
    played: list[PlayConfig] = []

    def play_run(problems: Any, policy: Any, executor: Any, play: PlayConfig, *_: Any, **__: Any) -> None:
        played.append(play)
        raise Enough

    monkeypatch.setattr("kerneldojo.rollout.play_run", play_run)
    monkeypatch.setattr("kerneldojo.cli.bench.open_executor", lambda *_: SimpleNamespace(close=lambda drain: None))
    asked = ["bench", "--suite", "katas:1", "--policy", "teacher", "--device", "cpu", "--out", str(tmp_path / "run")]
    for more in ([], ["--style", "compact"], ["--ask-plan"]):
        assert isinstance(CliRunner().invoke(commands, [*asked, *more]).exception, Enough)
    assert [(one.style, one.ask_plan) for one in played] == [("full", False), ("compact", False), ("full", True)]
