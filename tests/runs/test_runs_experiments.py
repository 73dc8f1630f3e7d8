"""The machinery of the experiments: arms, packs, processes side by side; and one small experiment from end to end."""

from __future__ import annotations

import sys
from pathlib import Path

import analysis
import h200
import pytest
import side_by_side
from proof import trial
from proof.arms import COMPARISONS, DROPPED, START, arms, config_of, differences, merged
from proof.clock import Clock
from proof.h200_config import CHECKED, NAIVE, POLICIES, load_proof, places, rl_config, sft_config
from proof.packing import PackError, pack, unpack
from proof.scales import FULL, SMOKE, Scale
from proof.tables import Row, read_rows, write_json, write_rows
from proof.workers import Piece, run_all

from kerneldojo import devices
from kerneldojo.schema import Answer, Episode, Problem, Turn
from kerneldojo.training.steps import thin

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("scale", [FULL, SMOKE])
def test_every_arm_is_a_configuration(scale: Scale) -> None:
    known = arms(scale)
    for arm in known.values():
        config = config_of(arm, scale, Path("out"), 3)
        assert config.seed == 3 and config.learning.mrs is not None
        assert config.play.num_turns <= arm.eval_turns
    assert {side for one in COMPARISONS for side in (one.treatment, one.control)} <= set(known) - {START}


def test_compared_arms_differ_in_what_is_compared_alone() -> None:
    known = arms(FULL)
    for one in COMPARISONS:
        sides = [config_of(known[name], FULL, Path("out"), 0) for name in (one.treatment, one.control)]
        answers = [side.prompts_per_step * side.samples_per_prompt * side.play.num_turns for side in sides]
        assert answers[0] == answers[1], one.name
        if not one.name.startswith("3 turns"):
            assert sides[0].prompts_per_step == sides[1].prompts_per_step
            told = [differences(known[name], FULL) for name in (one.treatment, one.control)]
            changed = {key for key in {*told[0], *told[1]} if told[0].get(key) != told[1].get(key)}
            assert changed and all(key.startswith(("learning.", "play.reward.")) for key in changed), one.name
    assert config_of(known["trloo-n3"], FULL, Path("out"), 0).drop_turns == DROPPED


def test_a_table_that_names_another_type_replaces_the_old_one() -> None:
    base = {"a": {"type": "x", "old": 1}, "b": {"c": 1, "d": 2}}
    assert merged(base, {"a": {"type": "y"}, "b": {"d": 3}}) == {"a": {"type": "y"}, "b": {"c": 1, "d": 3}}


def test_turns_are_dropped_by_name_and_seed_alone() -> None:
    def episode(name: str, text: str) -> Episode:
        turns = tuple(Turn(index=index, answer=Answer(text=text)) for index in range(3))
        return Episode(id=name, problem=Problem(name="p", source=""), turns=turns)

    names = [f"step-000001/{place:03d}/p/{sample:03d}" for place in range(40) for sample in range(10)]
    one, other = ([episode(name, text) for name in names] for text in ("a", "b"))
    kept = [len(cut.turns) for cut in thin(one, 0.25, 7)]
    assert kept == [len(cut.turns) for cut in thin(other, 0.25, 7)]
    assert kept != [len(cut.turns) for cut in thin(one, 0.25, 8)]
    shares = [sum(count > turn for count in kept) / len(kept) for turn in range(3)]
    assert shares == pytest.approx([0.75, 0.75**2, 0.75**3], abs=0.07)
    assert thin(one, 0.0, 7) == one


def test_a_pack_comes_back_in_parts(tmp_path: Path) -> None:
    source, parts, target = tmp_path / "source", tmp_path / "parts", tmp_path / "target"
    write_json(source / "results" / "a" / "done.json", {"x": 1})
    (source / "weights").mkdir()
    (source / "weights" / "model").write_bytes(bytes(range(256)) * 4000)
    (source / "link").symlink_to("weights")
    (source / "other").write_text("not asked for")
    written = pack(source, parts, ["results", "link", "missing"], part_bytes=500)
    assert len(written) >= 3 and all(path.stat().st_size <= 500 for path in written[:-1])
    first = [path.read_bytes() for path in written]
    assert unpack(parts, target) == 2
    assert (target / "link" / "model").read_bytes() == (source / "weights" / "model").read_bytes()
    assert not (target / "other").exists()
    assert [path.read_bytes() for path in pack(source, parts, ["results", "link"], part_bytes=500)] == first
    written[0].write_bytes(b"torn")
    with pytest.raises(PackError, match="not what was written"):
        unpack(parts, tmp_path / "again")
    assert not (tmp_path / "again").exists()
    with pytest.raises(PackError, match="do not fit"):
        pack(source, parts, ["link"], part_bytes=10)


@pytest.fixture
def newborn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock counts from the start of its process, which for these tests may be long ago."""
    monkeypatch.setattr("proof.clock.process_age", lambda: 0.0)


@pytest.mark.usefixtures("newborn")
def test_pieces_wait_for_what_they_need_and_one_that_fails_is_named(tmp_path: Path) -> None:
    def piece(name: str, code: str, *needs: str) -> Piece:
        command = [sys.executable, "-S", "-c", code.replace("FILE", repr(str(tmp_path / name)))]
        return Piece(name, command, tmp_path / name, [tmp_path / one for one in needs], tmp_path / f"{name}.log")

    touch = "open(FILE, 'w')"
    pieces = [piece("c", touch, "b"), piece("a", touch), piece("b", touch, "a"), piece("x", "raise SystemExit('no')")]
    ended: list[str] = []
    said: list[str] = []
    failed = run_all(
        pieces, Clock(60), at_once=2, environment={}, on_end=lambda one, _: ended.append(one.name), say=said.append
    )
    assert ended == ["a", "b", "c"] and [one.name for one in failed] == ["x"]
    assert len(said) == 2 and said[0].endswith("no")


@pytest.mark.usefixtures("newborn")
def test_a_piece_under_way_is_asked_to_stop(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time, pathlib\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path({str(tmp_path / 'asked')!r}).touch(), sys.exit(75)))\n"
        f"pathlib.Path({str(tmp_path / 'begun')!r}).touch()\n"
        "time.sleep(60)\n"
    )
    one = Piece("one", [sys.executable, "-S", "-c", code], tmp_path / "never")
    clock = Clock(60)
    ends = Clock(None)

    class UntilBegun(Clock):
        @property
        def is_over(self) -> bool:
            return (tmp_path / "begun").exists() or clock.is_over

    failed = run_all([one], UntilBegun(None), at_once=1, environment={}, on_end=lambda *_: None)
    assert failed == [] and (tmp_path / "asked").exists() and ends.spent < 60


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    rows = [
        Row(
            arm="a",
            seed=1,
            way="t=1",
            problem="p",
            sample=0,
            turn=2,
            status="passed",
            correct=True,
            speedup=1.25,
            host_bound=False,
        ),
        Row(arm="a", seed=1, way="greedy", problem="p", sample=0, turn=0, status="not_parsed", correct=False),
    ]
    write_rows(tmp_path / "rows.csv", rows)
    assert read_rows(tmp_path / "rows.csv") == rows


def test_the_proof_differs_from_its_ablation_in_the_reward_alone() -> None:
    proof = load_proof(ROOT / "runs" / "h200.toml", tiny=False)
    place = places(Path("out"), "model:h100", "auto")
    checked, naive = (rl_config(proof, place, name, 1).model_dump() for name in (CHECKED, NAIVE))
    assert naive["play"]["reward"]["type"] == "naive_for_experiments_only"
    assert naive["play"]["reward"]["base"] == checked["play"]["reward"]
    for one in (checked, naive):
        one["play"].pop("reward")
        one.pop("output")
    assert checked == naive
    assert checked["play"]["protocol"] == "quick" != proof.test_protocol
    assert sft_config(proof, place, 1).keep.statuses is None


def test_the_policy_has_a_gpu_between_verdicts_and_never_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "num_cuda_devices", lambda: 2)
    both = places(Path("out"), "cuda", "auto")
    assert (both.judges, both.policy, both.sampler) == (("cuda:0", "cuda:1"), "cuda:0", "cpu")
    apart = places(Path("out"), "cuda:1", "cuda:0")
    assert (apart.judges, apart.policy, apart.sampler) == (("cuda:1",), "cuda:0", "cuda:0")


def test_a_policy_that_travels_is_measured_elsewhere_and_one_that_does_not_is_trained_again(tmp_path: Path) -> None:
    config = load_proof(ROOT / "runs" / "h200.toml", tiny=False)
    place = places(tmp_path / "here", "model:h100", "auto")
    for name in (CHECKED, NAIVE):
        write_json(place.result(name, 0) / "trained.json", {"steps": 1})
    for model in (place.start(0), place.trained(CHECKED, 0)):
        write_json(model / "done.json", {})
    h200.write_pack(h200.Proof(config, place, Clock(None)), tmp_path / "pack")
    there = places(tmp_path / "there", "model:h100", "auto")
    unpack(tmp_path / "pack", there.out)
    h200.forget_unmeasured(there, config)
    assert (there.result(CHECKED, 0) / "trained.json").exists() and (there.trained(CHECKED, 0) / "done.json").exists()
    assert not there.result(NAIVE, 0).exists()
    write_json(place.result(CHECKED, 0) / "done.json", {})
    h200.write_pack(h200.Proof(config, place, Clock(None)), tmp_path / "after")
    unpack(tmp_path / "after", tmp_path / "last")
    assert not (tmp_path / "last" / "trained").exists() and (tmp_path / "last" / "starts" / "seed-0").exists()


def test_of_what_is_tested_nothing_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_proof(ROOT / "runs" / "h200.toml", tiny=False).model_copy(update={"seeds": [0, 1]})
    place = places(tmp_path, "model:h100", "auto")
    write_json(tmp_path / "collected" / "done.json", {})
    for name in POLICIES:
        for file in ("trained.json", "validation.json", "done.json"):
            write_json(place.result(name, 0) / file, {})
    phases: list[str] = []
    monkeypatch.setattr(h200.Proof, "_phase", lambda self, name, *_: phases.append(name))
    h200.Proof(config, place, Clock(None)).go()
    assert phases[0] == "SFT, seed 1" and not any("seed 0" in name for name in phases)
    assert len(phases) == 1 + 2 + 3 + 3


def test_an_unknown_arm_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="choose among start, trloo-n2"):
        side_by_side.main(["--out", str(tmp_path), "--smoke", "--arms", "trlo"])


@pytest.mark.slow
def test_a_small_experiment_goes_from_corpus_to_table(tmp_path: Path) -> None:
    scale = SMOKE.model_copy(
        update={"num_graphs": 1, "num_single": 6, "sft_epochs": 12.0, "steps": 1, "num_test": 1, "test_samples": 1}
    )
    executor = trial.open_judges(scale, tmp_path, 2)
    try:
        trial.collect(scale, tmp_path, executor)
        trial.make_start(scale, tmp_path, 0)
        for name in ("trloo-n4", "grpo-n4"):
            trial.run_trial(scale, tmp_path, arms(scale)[name], 0, executor)
    finally:
        executor.close(drain=False)
    kept = {path.name for path in (tmp_path / "results" / "trloo-n4" / "seed-0").iterdir()}
    assert kept == {"rows.csv", "metrics.jsonl", "config.json", "done.json"}
    assert not list((tmp_path / "work").rglob("checkpoints"))
    rows = read_rows(tmp_path / "results" / "trloo-n4" / "seed-0" / "rows.csv")
    assert {row.way for row in rows} == {"greedy", "t=1"} and {row.turn for row in rows} <= {0, 1, 2}
    assert analysis.main([str(tmp_path)]) == 0
    assert "| TRLOO over GRPO, N = 4 |" in (tmp_path / "analysis" / "README.md").read_text()
