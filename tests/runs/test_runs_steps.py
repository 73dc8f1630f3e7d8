"""Who is on which GPU, which steps count, and what is said of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import step_times
import torch
from proof import plots
from proof.clock import Clock
from proof.h200_config import load_proof, places
from proof.step_report import measured, write_report
from proof.step_task import NUM_STEPS, Arrangement, Way, arrangements, figures, short_start, step_config
from proof.tables import write_json

from kerneldojo import devices
from kerneldojo.training.judges import judges_after_writing, judging_devices
from kerneldojo.training.parallel import Ranks

ROOT = Path(__file__).parents[2]
PROOF = short_start(load_proof(ROOT / "runs" / "h200.toml", tiny=False))


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with eight GPUs, as far as names go."""
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)


def test_the_most_gpus_come_first_and_one_can_only_be_shared() -> None:
    assert [one.name for one in arrangements(8)][:4] == ["8-ahead", "8-apart", "8-shared", "4-ahead"]
    assert [one.name for one in arrangements(3)] == ["2-ahead", "2-apart", "2-shared", "1-shared"]


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize("one", arrangements(8), ids=lambda one: one.name)
def test_the_policy_is_beside_the_judges_or_among_them(one: Arrangement) -> None:
    place = places(Path("out"), "cuda", "auto")
    assert len(place.judges) == devices.num_cuda_devices() == 8
    told = step_config(PROOF, place, one, tiny=False)
    judging = judging_devices(told, Ranks(0, 1, torch.device(told.device)))
    first = 0 if one.way == "shared" else 1
    assert judging == [f"cuda:{index}" for index in range(first, one.gpus)] and len(judging) == one.num_judges
    assert told.device == "cuda:0" and told.judge.slots == 4 * one.num_judges
    assert told.staleness == (one.way == "ahead") and told.judge.after_writing is None
    assert told.steps == NUM_STEPS and told.prompts_per_step * told.samples_per_prompt == 192


@pytest.mark.usefixtures("eight")
def test_runs_differ_in_who_judges_and_when() -> None:
    place = places(Path("out"), "cuda", "auto")
    told = [step_config(PROOF, place, one, tiny=False).model_dump(mode="json") for one in arrangements(8)]
    for one in told:
        for key in ("output", "judge", "staleness"):
            one.pop(key)
    assert all(one == told[0] for one in told)


def test_without_a_gpu_slots_stand_for_them() -> None:
    place = places(Path("out"), "model:h100", "auto")
    ways: dict[Way, bool] = {"shared": True, "apart": False, "ahead": False}
    for way, rests in ways.items():
        told = step_config(PROOF, place, Arrangement(gpus=2, way=way), tiny=True)
        assert told.judge.devices == ("model:h100",) and told.judge.slots == (2 if way == "shared" else 1)
        assert judges_after_writing(told, Ranks(0, 1, torch.device("cpu")), None) is rests  # type: ignore[arg-type]


def run_of(folder: Path, steps: int, *, busy: float = 0.9, seconds: float = 10.0, stale: bool = True) -> Path:
    """A run's folder with a journal of `steps` steps."""
    (folder / "rollouts").mkdir(parents=True)
    records: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        spent = {"generate": 2.0, "score": 0.5, "update": 0.5, "wait": 4.0, "prepare": 1.0, "step": seconds + step}
        record: dict[str, Any] = {"step": step, "reward": 1.0, "correct": 0.5, "exploits": 0.0, "num_masked": 0}
        record |= {
            "verdicts": {"asked": 192, "judged": 100},
            "seconds": spent | {"judge_busy": busy if step > 2 else 0.1},
        }
        if stale:
            record["staleness"] = {"samples": 1.0, "ratio": 1.0, "kl": 0.002, "truncated": 0.0005}
        records += [record, {"step": step, "evaluation": {}}]
        version = max(0, step - 2) if stale else step - 1
        turns = [{"answer": {"version": version}}, {"answer": {"version": None}}]
        (folder / "rollouts" / f"step-{step:06d}.jsonl").write_text(json.dumps({"turns": turns}) + "\n")
    (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    return folder


def test_the_first_two_steps_and_the_last_do_not_count(tmp_path: Path) -> None:
    found = figures(run_of(tmp_path / "whole", 8), 8)
    assert found["steps"] == [3, 4, 5, 6, 7] and found["seconds"]["step"] == pytest.approx(15.0)
    assert found["seconds"]["other"] == pytest.approx(8.0), "preparing is a part of it"
    assert found["judge_busy"] == pytest.approx(0.9) and found["verdicts_a_second"] == pytest.approx(100 / 15)
    assert found["oldest"] == 1 and found["stale"]["kl"] == 0.002
    assert figures(run_of(tmp_path / "stopped", 4), 8)["steps"] == [3, 4], "beside its last one another was begun"
    fresh = figures(run_of(tmp_path / "fresh", 8, stale=False), 8)
    assert fresh["oldest"] == 0 and fresh["stale"] == {}
    with pytest.raises(ValueError, match="2 steps, of which none counts"):
        figures(run_of(tmp_path / "short", 2), 8)


@pytest.mark.parametrize(("busy", "word"), [(0.9, "holds"), (0.5, "does not hold")])
def test_the_report_says_what_holds(busy: float, word: str, tmp_path: Path) -> None:
    sizes = {"prompts": 16, "samples": 12, "device": "cuda", "parameters": 11_000_000}
    machine = {"processor": "some", "cores": 8, "versions": {"torch": "2"}, "commit": "abc", "gpus": ["H200"]}
    for one in arrangements(8):
        run = run_of(tmp_path / one.name, 8, busy=busy, seconds=10.0 if one.way == "ahead" else 15.0)
        write_json(measured(tmp_path, one), {**figures(run, 8), "sizes": sizes, "machine": machine})
    text = write_report(tmp_path)
    assert f"8 GPUs, two steps at once: judges are busy {100 * busy:.0f} % of the time" in text
    assert f"claimed are at least 85 %, which {word}." in text
    assert "one step after the other 0.200: 25 % less" in text and "the oldest by 1 update" in text
    assert text.count("| all judge, one learns in between |") == 4
    if plots.is_possible():
        assert (tmp_path / "steps.png").stat().st_size > 10_000 and (tmp_path / "steps.svg").exists()
    assert write_report(tmp_path / "nothing") == "nothing is measured yet"


def test_what_a_machine_cannot_do_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"--only 64-ahead: this machine can do .*1-shared"):
        step_times.chosen("64-ahead", places(tmp_path, "model:h100", "auto"))


def test_what_is_measured_is_not_measured_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import argparse

    one, other = Arrangement(gpus=1, way="shared"), Arrangement(gpus=2, way="ahead")
    write_json(measured(tmp_path, one), {})
    args = argparse.Namespace(out=tmp_path, tiny=False, each=10.0)
    assert step_times.all_of_them(args, [one, other], Clock(30.0)) == []
    assert capsys.readouterr().out == "2-ahead: no time left\n"
