"""The whole job with the real judge, in small; and what a user is told where it cannot be done."""

from __future__ import annotations

import io
import json
import resource
import shutil
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import toy_world
from rich.console import Console

from kerneldojo.cli.arguments import BadUsage, Failed
from kerneldojo.cli.learn import learn
from kerneldojo.cli.learn_panel import learn_panel
from kerneldojo.cli.train import rl_command, sft_command
from kerneldojo.learning import phases
from kerneldojo.learning.record import Learned, Phase, write
from kerneldojo.learning.settings import LearnConfig, rl_config, sft_config
from kerneldojo.schema import Episode
from kerneldojo.training.config import RLConfig, SFTConfig
from kerneldojo.training.journal import read_journal
from kerneldojo.training.settings import load_config

RECIPES = Path(__file__).parents[2] / "recipes"
SMALL = LearnConfig(
    num_graphs=2,
    num_answers=5,
    sft_epochs=45,
    rl_steps=2,
    prompts_per_step=2,
    samples_per_prompt=4,
    num_validation=1,
    num_test=2,
)


def test_the_recipes_are_what_learn_does() -> None:
    folder = Path("runs-out/laptop")
    assert load_config(SFTConfig, RECIPES / "laptop-sft.toml") == sft_config(folder, LearnConfig())
    assert load_config(RLConfig, RECIPES / "laptop-rl.toml") == rl_config(folder, LearnConfig())


@pytest.mark.slow
@pytest.mark.timeout(900)  # Half a minute of computing, on a machine that may have other work.
def test_a_model_from_nothing_is_judged_and_learns_from_its_verdicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests have the other cores, and threads that wait for one another are slower than one.
    monkeypatch.setattr(phases, "os", SimpleNamespace(sched_getaffinity=lambda _: {0}))
    learned = learn(tmp_path, config=SMALL, show=False)
    assert [phase.name for phase in learned.phases] == ["collect", "SFT", "RL", "benchmark", "report"]
    collect = learned.phases[0]
    assert collect.num_asked == 10 and 0 < collect.num_judged <= 10

    steps = [json.loads(line) for line in (tmp_path / "rl" / "metrics.jsonl").read_text().splitlines()]
    assert [one["step"] for one in steps if "reward" in one] == [1, 2]
    files = sorted((tmp_path / "rl" / "rollouts").glob("*.jsonl"))
    episodes = [Episode.model_validate_json(line) for file in files for line in file.read_text().splitlines()]
    assert len(episodes) == 2 * 2 * 4
    verdicts = [turn.evaluation for episode in episodes for turn in episode.turns if turn.evaluation is not None]
    passed = [verdict for verdict in verdicts if verdict.correct]
    assert passed and all(one.timing.source == "modeled" and one.speedup and one.coverage for one in passed)
    for episode in episodes:
        assert (episode.turns[0].reward or 0) > 0 or not episode.turns[0].is_correct

    text = io.StringIO()
    Console(file=text, width=110).print(learn_panel(learned, tmp_path))
    assert "RL: learn from rewards" in text.getvalue() and "after RL" in text.getvalue()
    assert all((tmp_path / page).stat().st_size > 1000 for page in learned.pages)
    before = (tmp_path / "learn.json").read_bytes()
    assert learn(tmp_path, config=SMALL, show=False) == learned  # what is done is not done again
    assert (tmp_path / "learn.json").read_bytes() == before
    with pytest.raises(BadUsage, match="other settings"):
        learn(tmp_path, seed=1, config=SMALL, show=False)


def test_a_device_without_times_is_refused_before_anything_is_collected(tmp_path: Path) -> None:
    with pytest.raises(BadUsage, match="device 'cpu' has neither times nor a profile"):
        learn(tmp_path / "run", device="cpu", show=False)
    assert not (tmp_path / "run").exists()


def test_a_run_that_never_ended_its_first_phase_holds_others_to_its_settings(tmp_path: Path) -> None:
    (tmp_path / "collected").write_text("in the way")
    with pytest.raises(BadUsage, match="collected"):
        learn(tmp_path, config=SMALL, show=False)
    with pytest.raises(BadUsage) as caught:
        learn(tmp_path, config=SMALL, seed=7, show=False)
    told = f"{tmp_path} holds a run with other settings (seed was 0 and is 7): give --fresh or another folder"
    assert str(caught.value) == told


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "learn.json").write_text("{}")
    with pytest.raises(BadUsage, match="not readable"):
        learn(tmp_path, show=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(BadUsage):
        learn(tmp_path / "file", show=False)
    (tmp_path / "other" / "checkpoints").mkdir(parents=True)
    for fresh in (False, True):
        with pytest.raises(BadUsage, match="'checkpoints', which is no part of such a run"):
            learn(tmp_path / "other", fresh=fresh, show=False)
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["checkpoints"], "nothing was written or removed"


def test_a_journal_that_cannot_be_written_is_told_in_one_line(tmp_path: Path, collected: Path) -> None:
    (tmp_path / "run" / "metrics.jsonl").mkdir(parents=True)
    told = [f'output="{tmp_path / "run"}"', f'data=["{collected}"]', "epochs=1", "num_validation=4"]
    with pytest.raises(BadUsage, match=r"metrics\.jsonl") as caught:
        sft_command(RECIPES / "laptop-sft.toml", told, quiet=True)
    assert "\n" not in str(caught.value)


@contextmanager
def files_of_at_most(size: int) -> Generator[None]:
    """No file may grow beyond `size` bytes: as good as a full disk, the kernel refuses the write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_fills_up_in_the_middle_of_a_run_is_nobodys_bad_usage(
    tmp_path: Path, collected: Path, dojo_here: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    told = [f"output={tmp_path / 'run'}", f'data=["{collected}"]', "epochs=40", "num_validation=4"]
    told.append("model.new={vocabulary=512, hidden=16, intermediate=16, layers=1, heads=1}")
    with files_of_at_most(4000):
        done = dojo_here("train", "sft", RECIPES / "laptop-sft.toml", "--quiet", *(f"--set={one}" for one in told))
    assert done.stderr == f"dojo: cannot write {tmp_path / 'run' / 'metrics.jsonl'}: File too large\n"
    assert done.returncode == 3 and len(read_journal(tmp_path / "run" / "metrics.jsonl")) > 1


def test_a_phase_that_cannot_be_ended_is_nobodys_bad_usage(tmp_path: Path, collected: Path) -> None:
    config = SMALL.model_copy(update={"sft_epochs": 1.0})
    shutil.copytree(collected, tmp_path / "collected")
    write(Learned(config=config, phases=(Phase(name="collect", seconds=1.0),)), tmp_path)
    match = r"^SFT ended after 3 steps: cannot write the checkpoint.*File too large"
    with files_of_at_most(1 << 20), pytest.raises(Failed, match=match) as caught:
        learn(tmp_path, config=config, show=False)
    assert "\n" not in str(caught.value)


def test_rollouts_that_cannot_be_written_are_told_in_one_line(tmp_path: Path, imitator: Path) -> None:
    from kerneldojo.cli.train import training_errors
    from kerneldojo.training.parallel import start_ranks
    from kerneldojo.training.rl import train_rl

    toy_world.write_problems(tmp_path / "problems")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "rollouts").write_text("in the way")
    with pytest.raises(BadUsage, match="rollouts") as caught, training_errors():
        train_rl(toy_world.rl_config(tmp_path / "run", imitator), toy_world.TextJudge(), start_ranks("cpu"), show=False)
    assert "\n" not in str(caught.value)


def test_a_service_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    told = [f'output="{tmp_path / "run"}"', f'model.path="{tmp_path}"', 'judge.service="http://127.0.0.1:9"']
    with pytest.raises(BadUsage, match=r"judge\.service: http://127\.0\.0\.1:9") as caught:
        rl_command(RECIPES / "laptop-rl.toml", told, quiet=True)
    assert "\n" not in str(caught.value) and not (tmp_path / "run").exists()
