"""Supervised training: it learns, goes on where it was, and learns from what it was told to."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy_world

from kerneldojo.episodes import end_id, first_episode
from kerneldojo.problems.graphs import Split, graph_problems
from kerneldojo.rollout import Manifest, RunFolder
from kerneldojo.training import sft
from kerneldojo.training.checkpoints import Checkpoints
from kerneldojo.training.config import KeepConfig
from kerneldojo.training.display import Display, curve
from kerneldojo.training.journal import read_journal
from kerneldojo.training.learner import open_learner
from kerneldojo.training.model_config import GPU, GPU_LARGE, LAPTOP, ModelConfig, NewModelConfig
from kerneldojo.training.models import load_model, new_model, num_parameters
from kerneldojo.training.optimizing import OptimizerConfig
from kerneldojo.training.packing import Sample
from kerneldojo.training.parallel import Ranks
from kerneldojo.training.settings import ConfigError
from kerneldojo.training.tokens import encode, train_tokenizer


def curve_of(output: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in one.items() if k != "seconds"} for one in read_journal(output / "metrics.jsonl")]


def test_the_loss_falls_to_what_is_random_in_the_answers(imitator: Path) -> None:
    records = curve_of(imitator.parent)
    assert records[-1]["validation"]["loss"] < 0.5 < records[0]["loss"]
    assert (imitator / "model.safetensors").exists()


@pytest.mark.parametrize("matrices", ["muon", "adamw"])
def test_a_run_in_two_parts_is_as_one(matrices: str, tmp_path: Path, collected: Path, ranks: Ranks) -> None:
    changes = {"optimizer": {"matrices": matrices, "learning_rate": 0.01}, "evaluate_every": 2}
    whole = toy_world.sft_config(tmp_path / "whole", collected, epochs=2, **changes)
    steps = sft.train_sft(whole, ranks, show=False).steps
    half = toy_world.sft_config(tmp_path / "half", collected, epochs=1, **changes)
    first = sft.train_sft(half, ranks, show=False).steps
    assert 0 < first < steps
    more = half.model_copy(update={"epochs": 2.0})
    assert sft.train_sft(more, ranks, resume=True, show=False).steps == steps

    def told(output: Path) -> list[dict[str, Any]]:  # the first part looked at its validation once more, at its end
        return [{k: v for k, v in one.items() if k != "validation"} for one in curve_of(output)]

    assert told(half.output) == told(whole.output)
    one, two = (load_model(str(run.output / "model")) for run in (whole, half))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


def test_samples_are_turns_with_their_end_and_verdicts_choose() -> None:
    episodes = toy_world.played(repeats=1)
    tokenizer = toy_world.tokenizer()
    every = list(sft.samples_of(episodes, tokenizer, KeepConfig(statuses=None), None))
    assert len(every) == sum(len(episode.turns) for episode in episodes)
    assert all(
        sample.answer[-1] == end_id(tokenizer) and end_id(tokenizer) not in sample.answer[:-1] for sample in every
    )
    first = encode(tokenizer, episodes[0].turns[0].answer.text)
    start = every[1].prompt.index(first[0])  # the second prompt holds the first answer, and the feedback to it
    assert list(every[1].prompt[start : start + len(first)]) == first and len(every[1].prompt) > start + len(first)
    passed = list(sft.samples_of(episodes, tokenizer, KeepConfig(), None))
    fast = list(sft.samples_of(episodes, tokenizer, KeepConfig(min_speedup=1.5), None))
    assert len(passed) == len(every) / 2 and len(fast) == len(every) / 4
    assert not list(sft.samples_of(episodes, tokenizer, KeepConfig(), 10))


def test_cut_answers_are_not_imitated() -> None:
    episode = toy_world.played(repeats=1)[0]
    turn = episode.turns[0]
    cut = turn.model_copy(update={"answer": turn.answer.model_copy(update={"finish": "length"})})
    whole = episode.model_copy(update={"turns": (cut, *episode.turns[1:])})
    assert len(list(sft.samples_of([whole], toy_world.tokenizer(), KeepConfig(statuses=None), None))) == 1


def test_a_prompt_that_is_too_long_for_this_tokenizer_ends_its_episode() -> None:
    """Who collects without a tokenizer estimates the budget, at three bytes a token; ours may need more."""
    tokenizer, episodes = toy_world.tokenizer(), toy_world.played(repeats=1)
    longest = max(len(sample.prompt) for sample in sft.samples_of(episodes, tokenizer, KeepConfig(statuses=None), None))
    tight = [
        one.model_copy(update={"settings": {**one.settings, "max_prompt_tokens": longest - 1}}) for one in episodes
    ]
    kept = list(sft.samples_of(tight, tokenizer, KeepConfig(statuses=None), None))
    assert len(episodes) <= len(kept) < 2 * len(episodes)
    assert all(len(sample.prompt) < longest for sample in kept)


def test_epochs_of_other_lengths_than_the_first_have_every_sample_once(tmp_path: Path, ranks: Ranks) -> None:
    """Packed in another order the same samples may take a step more or less."""
    chance = np.random.default_rng(24)
    samples = [Sample((1,), (number + 2,) * int(chance.integers(2, 60))) for number in range(120)]
    packing = {"row_tokens": 100, "micro_batch_tokens": 100}
    changes = {"num_validation": 0, "batch_tokens": 100, "packing": packing, "epochs": 4}
    told = toy_world.sft_config(tmp_path, tmp_path, **changes)
    shape = NewModelConfig(vocabulary=512, hidden=32, intermediate=48, layers=1, heads=2)
    learner = open_learner(ModelConfig(new=shape), OptimizerConfig(), ranks, tokenizer=toy_world.tokenizer())
    run = sft._Training(told, learner, samples, Checkpoints(tmp_path))
    lengths = [len(run._epoch(epoch)) for epoch in range(4)]
    assert min(lengths) < lengths[0] < max(lengths)
    for epoch, length in enumerate(lengths):
        seen = [token for _ in range(length) for batch in run._next_batches() for token in batch.tokens.tolist()]
        assert run.epoch == epoch and sorted(seen) == list(range(sum(len(sample.answer) for sample in samples)))


def test_data_that_is_not_there(tmp_path: Path, collected: Path, ranks: Ranks) -> None:
    with pytest.raises(ConfigError, match=r"data: .* is not a folder"):
        sft.train_sft(toy_world.sft_config(tmp_path / "run", tmp_path / "nothing"), ranks, show=False)
    with pytest.raises(ConfigError, match=r"data: .* holds no run"):
        sft.train_sft(toy_world.sft_config(tmp_path / "run", tmp_path), ranks, show=False)
    told = toy_world.sft_config(tmp_path / "other", collected, keep={"max_tokens": 3})
    with pytest.raises(ConfigError, match="data: 0 samples"):
        sft.train_sft(told, ranks, show=False)


@pytest.mark.parametrize("split", ["train", "validation", "test", "extrapolation"])
def test_what_is_held_out_is_not_imitated(split: Split, tmp_path: Path) -> None:
    with RunFolder(tmp_path).open(Manifest(settings={})) as run:
        for problem in [*toy_world.problems(), *graph_problems(split, count=1)]:
            run.add_episode(first_episode(problem, toy_world.PLAY).model_copy(update={"finish": "turns"}))
    told = toy_world.sft_config(tmp_path / "run", tmp_path)
    if split == "train":
        assert len(list(sft.read_episodes(told))) == 4
    else:
        with pytest.raises(ConfigError, match=rf"^data: .* has answers to graphs:{split}/.* held out"):
            list(sft.read_episodes(told))


def test_a_refused_run_does_not_lock_its_folder(tmp_path: Path, collected: Path, ranks: Ranks) -> None:
    wrong = toy_world.sft_config(tmp_path / "run", tmp_path / "nothing", epochs=0.1)
    with pytest.raises(ConfigError, match="data: "):
        sft.train_sft(wrong, ranks, show=False)
    right = wrong.model_copy(update={"data": (collected,)})
    assert sft.train_sft(right, ranks, show=False).steps == 1
    with pytest.raises(ConfigError, match="--resume"):  # now there is work in it
        sft.train_sft(right, ranks, show=False)
    with pytest.raises(ConfigError, match="data: differs"):
        sft.train_sft(wrong, ranks, resume=True, show=False)


def test_two_processes_do_not_write_to_one_folder(tmp_path: Path, collected: Path, ranks: Ranks) -> None:
    told = toy_world.sft_config(tmp_path / "run", collected, epochs=0.1)
    told.output.mkdir()
    taken = told.output / "checkpoints" / ".partial-of-another"
    taken.mkdir(parents=True)
    script = f"""
import time
from pathlib import Path
from kerneldojo.rollout.lock import Lock
lock = Lock(Path({str(told.output / "lock")!r}))
print("held", flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        try:
            with pytest.raises(ConfigError, match=rf"^output: .*another run \(process {other.pid}\)"):
                sft.train_sft(told, ranks, show=False)
            assert taken.is_dir(), "what the other writes is no rest of a killed process"
        finally:
            other.kill()
    assert sft.train_sft(told, ranks, show=False).steps == 1, "a killed process holds nothing"
    assert not taken.exists()


def test_a_run_does_not_go_on_with_other_data(tmp_path: Path, collected: Path, ranks: Ranks) -> None:
    data = tmp_path / "collected"
    shutil.copytree(collected, data)
    told = toy_world.sft_config(tmp_path / "run", data, epochs=0.1)
    sft.train_sft(told, ranks, show=False)
    with RunFolder(data).open(Manifest(settings={})) as more:
        episode = toy_world.played(repeats=1)[0]
        more.add_episode(episode.model_copy(update={"id": "one-more"}))
    before = (told.output / "metrics.jsonl").read_bytes()
    longer = told.model_copy(update={"epochs": 1.0})
    with pytest.raises(ConfigError, match=r"^data: its samples have changed"):
        sft.train_sft(longer, ranks, resume=True, show=False)
    assert (told.output / "metrics.jsonl").read_bytes() == before


def test_skipped_steps_are_counted_over_a_break(tmp_path: Path, collected: Path, ranks: Ranks) -> None:
    """Weights that are not finite are so again when the run goes on."""
    poisoned = new_model(toy_world.TINY, toy_world.tokenizer())
    with torch.no_grad():
        next(poisoned.parameters()).fill_(torch.nan)
    poisoned.save_pretrained(tmp_path / "model")
    toy_world.tokenizer().save_pretrained(tmp_path / "model")
    model = ModelConfig(path=str(tmp_path / "model"))
    told = toy_world.sft_config(tmp_path / "run", collected, epochs=0.6, max_skipped=3, model=model)
    assert sft.train_sft(told, ranks, show=False).steps == 2
    outcome = sft.train_sft(told.model_copy(update={"epochs": 9.0}), ranks, resume=True, show=False)
    assert outcome.reason == "loss or gradient was not finite 3 times in a row" and outcome.steps == 3


def test_sizes_are_what_they_are_called() -> None:
    corpus = [f"line {n} is {n * n}\n" for n in range(4000)]
    for shape, low, high in ((LAPTOP, 0.9e6, 1.0e6), (GPU, 10e6, 12e6), (GPU_LARGE, 30e6, 50e6)):
        tokenizer = train_tokenizer(corpus, shape.vocabulary)
        assert len(tokenizer) == shape.vocabulary
        with torch.device("meta"):
            assert low <= num_parameters(new_model(shape, tokenizer)) <= high


def test_the_panel_shows_what_happened() -> None:
    from rich.console import Console

    display = Display("rl", "0.9 M parameters", 20, enabled=False)
    for step in range(1, 30):
        numbers = {"reward": step / 10, "correct": 0.5, "fast_1.2": step / 40, "exploits": 0.01, "answer_tokens": 35.0}
        seconds = {"generate": 1.0, "wait": 2.0, "score": 0.5, "update": 0.5, "judge_busy": 0.875}
        display.show_rl({"step": step, **numbers, "kl": 0.001, "entropy": 1.0, "seconds": seconds}, step / 29)
    results = {"correct": 0.6, "fast_1": 0.5, "fast_1.2": 0.4, "exploits": 0.0, "num_samples": 64}
    display.show_evaluation(29, results)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(display.picture())
    text = console.export_text()
    for words in ("fast@1.2", "72.5%", "exploits", "wait 2.0 s", "judges 88% busy", "held out after step 29", "▁", "█"):
        assert words in text
    assert len(curve(display.history["reward"])) == 29


def test_what_is_rounding_alone_is_shown_as_nothing() -> None:
    display = Display("rl", "", 3, enabled=False)
    for step, kl in enumerate((3e-15, -2e-15, float("nan"), float("inf"), 2e-15)):
        display.show_rl({"step": step, "kl": kl}, 0.5)
    assert curve(display.history["kl"]) == "▁▁  ▁" and display.history["kl"][-1] == 0


def test_a_curve_has_gaps_where_a_number_is_not_finite() -> None:
    """Else the first loss that is no number would end the run, on a terminal, and without a checkpoint."""
    nan, inf = float("nan"), float("inf")
    assert curve(deque([1.0, nan, 2.0, inf, 1.0])) == "▁ █ ▁"
    assert curve(deque([nan])) == " "
    assert curve(deque([1.0] * 40 + [nan] * 40), 4) == "▁▁  "


def test_a_run_that_keeps_nothing_apart_has_no_loss_on_it(
    tmp_path: Path, collected: Path, ranks: Ranks, capfd: pytest.CaptureFixture[str]
) -> None:
    told = toy_world.sft_config(tmp_path / "run", collected, num_validation=0, evaluate_every=1, epochs=0.5)
    assert sft.train_sft(told, ranks).reason == "finished"
    assert not any("validation" in record for record in curve_of(tmp_path / "run"))
    assert "validation" not in capfd.readouterr().err


def test_a_step_without_a_change_says_so(
    tmp_path: Path, collected: Path, ranks: Ranks, capfd: pytest.CaptureFixture[str]
) -> None:
    changes = {"optimizer": OptimizerConfig(learning_rate=1e30), "epochs": 100, "max_skipped": 2}
    outcome = sft.train_sft(toy_world.sft_config(tmp_path / "run", collected, **changes), ranks)
    assert outcome.reason == "loss or gradient was not finite 2 times in a row"
    assert capfd.readouterr().err.count("skipped: not finite") == 2
