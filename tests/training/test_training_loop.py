"""RL from end to end: it learns, and neither kill -9 nor Ctrl-C nor a dying judge changes what it learns."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_world
from pydantic import ValidationError
from toy_world import TextJudge
from transformers import BloomConfig, BloomForCausalLM

from kerneldojo.client import ClientError
from kerneldojo.policies.sampler import Row, Sampled
from kerneldojo.pool import DeviceState
from kerneldojo.schema import Answer, Evaluation, Job, Status
from kerneldojo.training import playing
from kerneldojo.training.config import JudgeConfig, RLConfig
from kerneldojo.training.journal import read_journal
from kerneldojo.training.judges import judges_after_writing, open_executor
from kerneldojo.training.model_config import ModelConfig
from kerneldojo.training.parallel import Ranks
from kerneldojo.training.playing import Played, Player
from kerneldojo.training.rl import train_rl
from kerneldojo.training.settings import ConfigError


@pytest.fixture
def config(tmp_path: Path, imitator: Path):
    toy_world.write_problems(tmp_path / "problems")

    def build(**changes: object) -> RLConfig:
        return toy_world.rl_config(tmp_path / str(changes.pop("name", "run")), imitator, **changes)

    return build


def curve(config: RLConfig) -> list[dict[str, Any]]:
    """The journal without durations."""
    return [{k: v for k, v in one.items() if k != "seconds"} for one in read_journal(config.output / "metrics.jsonl")]


def steps_of(config: RLConfig) -> list[dict[str, Any]]:
    return [one for one in curve(config) if "reward" in one]


def test_it_learns_and_leaves_checkpoints_behind(config, ranks: Ranks) -> None:
    told = config(steps=25, checkpoint_every=10, samples_per_prompt=16)
    judge = TextJudge()
    assert train_rl(told, judge, ranks, show=False).reason == "finished"
    steps = steps_of(told)
    assert [one["step"] for one in steps] == list(range(1, 26))
    first, last = steps[:3], steps[-3:]
    assert sum(one["fast_1.2"] for one in last) > 2 * sum(one["fast_1.2"] for one in first)
    assert sum(one["reward"] for one in last) > sum(one["reward"] for one in first) + 1.5
    assert steps[0]["mismatch"]["max"] < 1e-3 and steps[0]["samples"]["mrs_acceptance"] == 1.0
    # Equal answers are judged once, over the whole run.
    assert len({job.hash for job in judge.jobs}) == len(judge.jobs) < sum(one["num_samples"] for one in steps)
    assert (told.output / "model" / "config.json").exists() and (told.output / "best" / "tokenizer.json").exists()
    evaluations = [one for one in curve(told) if "evaluation" in one]
    assert [one["step"] for one in evaluations] == [0, *range(2, 25, 2), 25]
    best = max(evaluations, key=lambda one: one["evaluation"]["fast_1.2"])["step"]
    assert (told.output / "best").resolve().parent.name == f"step-{best:06d}" or best == 0
    episodes = (told.output / "rollouts" / "step-000001.jsonl").read_text().splitlines()
    assert len(episodes) == 32 and json.loads(episodes[0])["id"].startswith("step-000001/000/")


SCRIPT = """
import gc, json, sys
from pathlib import Path
gc.set_threshold(50_000)  # As in the command line.
sys.path.insert(0, {tests!r})
import torch; torch.set_num_threads(1)
from toy_world import TextJudge
from transformers import BloomConfig, BloomForCausalLM
from kerneldojo.training.config import JudgeConfig, RLConfig
from kerneldojo.training.parallel import start_ranks
from kerneldojo.training.rl import train_rl
config = RLConfig.model_validate_json(Path({config!r}).read_text())
train_rl(config, TextJudge(kill_at={kill_at}), start_ranks("cpu"), show=False)
"""


def run_killed(config: RLConfig, folder: Path, kill_at: int) -> int:
    """Train in a process that kills itself at its n-th order to the judge; its return code."""
    path = folder / "told.json"
    path.write_text(config.model_dump_json())
    script = SCRIPT.format(tests=str(Path(__file__).parent), config=str(path), kill_at=kill_at)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env=environment, timeout=120).returncode


def same(first: Any, second: Any) -> bool:
    """Whether two states hold the same numbers."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(same(a, b) for a, b in zip(first, second, strict=True))
    return torch.equal(first, second) if isinstance(first, torch.Tensor) else first == second


def test_a_killed_run_goes_on_as_if_it_had_not_been(config, ranks: Ranks, tmp_path: Path) -> None:
    whole = config(name="whole")
    counting = TextJudge()
    train_rl(whole, counting, ranks, show=False)
    killed = config(name="killed")
    assert run_killed(killed, tmp_path, kill_at=len(counting.jobs) * 2 // 3) == -signal.SIGKILL
    before = steps_of(killed)
    assert 1 <= len(before) < 4  # it died in the middle
    # What a process leaves that dies while writing: a torn line, and a checkpoint that is not one.
    with (killed.output / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "reward": 0.')
    (killed.output / "checkpoints" / ".partial-000004-1").mkdir()
    with pytest.raises(ConfigError, match="--resume"):
        train_rl(killed, TextJudge(), ranks, show=False)
    assert train_rl(killed, TextJudge(), ranks, resume=True, show=False).steps == 4

    def told(run: RLConfig) -> list[dict[str, Any]]:
        # How many orders were placed depends on what a process remembers.
        return [{k: v for k, v in one.items() if k != "verdicts"} for one in curve(run)]

    assert told(killed) == told(whole)
    assert not list((killed.output / "checkpoints").glob(".partial*"))
    first, second = (torch.load(run.output / "checkpoints/step-000004/state.pt") for run in (whole, killed))
    assert same(first["optimizer"]["state"], second["optimizer"]["state"])


def test_ctrl_c_in_the_middle_of_a_step_saves_and_stops(config, ranks: Ranks) -> None:
    class Interrupting(TextJudge):
        def submit(self, job: Job):
            if len(self.jobs) == 12:
                os.kill(os.getpid(), signal.SIGINT)
            return super().submit(job)

    told = config()
    outcome = train_rl(told, Interrupting(), ranks, show=False)
    assert outcome.reason == "stopped" and outcome.steps < 4
    assert train_rl(told, TextJudge(), ranks, resume=True, show=False).reason == "finished"
    assert [one["step"] for one in steps_of(told)] == [1, 2, 3, 4]


class Witnessed(TextJudge):
    """Keeps how many answers of the step were there, when each was handed in."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []
        self.written = 0

    def submit(self, job: Job) -> Future[Evaluation]:
        self.seen.append(self.written)
        return super().submit(job)


@pytest.mark.parametrize("after_writing", [False, True])
def test_a_policy_that_shares_its_gpu_is_judged_when_it_rests(
    after_writing: bool, config, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, told = Witnessed(), config(steps=1, evaluation={"problems": ()})
    plain = playing.answer_of

    def counted(*arguments: Any, **named: Any) -> Any:
        judge.written += 1
        return plain(*arguments, **named)

    monkeypatch.setattr(playing, "answer_of", counted)
    told = told.model_copy(update={"judge": told.judge.model_copy(update={"after_writing": after_writing})})
    assert train_rl(told, judge, ranks, show=False).is_good
    assert (set(judge.seen) == {16, 32}) is after_writing  # two turns of 2 problems, 8 answers each


def test_who_shares_a_gpu_is_seen(config) -> None:
    class Judges(TextJudge):
        def devices(self) -> list[DeviceState]:
            return [DeviceState(name=f"cuda:{index}", kind="cuda") for index in (1, 2)]

    apart, shared = (Ranks(0, 1, torch.device("cuda", index)) for index in (0, 1))
    told = config()
    assert not judges_after_writing(told, apart, Judges())
    assert judges_after_writing(told, shared, Judges())
    assert not judges_after_writing(told, Ranks(0, 1, torch.device("cpu")), Judges())
    elsewhere = told.judge.model_copy(update={"service": "http://far.away:8000"})
    assert not judges_after_writing(told.model_copy(update={"judge": elsewhere}), shared, Judges())
    ahead = told.model_copy(update={"staleness": 1})
    assert not judges_after_writing(ahead, apart, Judges())
    with pytest.raises(ConfigError, match="staleness = 1: policy and judge share cuda:1"):
        judges_after_writing(ahead, shared, Judges())
    with pytest.raises(ValidationError, match="contradict"):
        config(staleness=1, judge={"after_writing": True})


def test_a_judge_that_comes_back_costs_time_alone(config, ranks: Ranks) -> None:
    calm, troubled = config(name="calm"), config(name="troubled", judge={"patience_s": 60.0})
    train_rl(calm, TextJudge(), ranks, show=False)
    train_rl(troubled, TextJudge(fail_orders=range(3, 7)), ranks, show=False)
    assert sum(one["faults"]["retried"] for one in steps_of(troubled)) >= 1
    for name in ("reward", "loss", "grad_norm", "num_masked"):
        assert [one.get(name) for one in steps_of(calm)] == [one.get(name) for one in steps_of(troubled)]


def test_a_judge_that_stays_away_masks_whole_trajectories(config, ranks: Ranks) -> None:
    class Failing(TextJudge):
        """Fails for way 1, always."""

        def submit(self, job: Job):
            future = super().submit(job)
            if "way = 1" in job.candidate.source:
                future = type(future)()
                broken = Evaluation(status=Status.INFRASTRUCTURE_ERROR, message="disk", device="model:h100")
                future.set_result(broken)
            return future

    told = config(steps=2)
    train_rl(told, Failing(), ranks, show=False)
    first = steps_of(told)[0]
    assert first["num_masked"] > 0 and first["samples"]["num_faulty"] >= first["num_masked"]
    assert first["samples"]["num_counted"] == first["num_samples"] - first["samples"]["num_faulty"]


def test_a_look_that_was_hardly_judged_is_not_the_best(config, ranks: Ranks) -> None:
    """At the first look the judge fails for all but some of the fast answers, at the second one for none."""

    class Failing(TextJudge):
        is_calm = False

        def submit(self, job: Job):
            is_fast = "way = 3" in job.candidate.source
            if self.is_calm or (is_fast and "add_1" not in job.problem.name):
                return super().submit(job)
            raise ConnectionError("nobody there")

    judge, finish = Failing(), Player.finish

    def finish_first_look(self: Player, played: Played) -> None:
        finish(self, played)
        judge.is_calm = True

    looks = {"problems": config().evaluation.problems, "temperature": 1.0, "num_samples": 8, "num_turns": 1}
    told = config(steps=1, evaluation=looks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Player, "finish", finish_first_look)
        train_rl(told, judge, ranks, show=False)
    first, last = (one["evaluation"] for one in curve(told) if "evaluation" in one)
    assert first["num_masked"] > 0 == last["num_masked"]
    assert first["fast_1.2"] > last["fast_1.2"] > 0, "of what was judged, more was fast"
    assert (told.output / "best").resolve().parent.name == "step-000001"


def test_all_at_once_judges_failing_is_a_skipped_step(config, ranks: Ranks) -> None:
    told = config(steps=1, evaluation={"problems": ()})
    train_rl(told, TextJudge(fail_orders=range(10_000)), ranks, show=False)
    assert steps_of(told)[0]["skipped"]


@pytest.mark.parametrize("staleness", [0, 1])
def test_a_judge_that_never_comes_back_ends_the_run(staleness: int, config, ranks: Ranks) -> None:
    told = config(steps=6, max_skipped=2, staleness=staleness, evaluation={"problems": ()})
    outcome = train_rl(told, TextJudge(fail_orders=range(10_000)), ranks, show=False)
    assert not outcome.is_good and outcome.steps == 2
    assert "not one verdict came in 2 steps in a row: not judged" in outcome.reason
    assert "nobody there" in outcome.reason and "\n" not in outcome.reason
    assert (told.output / "model").resolve().parent.name == "step-000002"
    # With a judge that answers it goes on.
    assert train_rl(told, TextJudge(), ranks, resume=True, show=False).reason == "finished"


def test_a_step_without_code_does_not_say_that_the_judge_is_back(
    config, ranks: Ranks, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every other step the policy writes no code: what the judge owes it in the others is lost all the same."""
    plain = playing.answer_of

    def sometimes_mute(row: Row, sampled: Sampled, tokenizer: Any, *, version: int) -> Answer:
        written = plain(row, sampled, tokenizer, version=version)
        return written.model_copy(update={"text": "" if version % 2 else toy_world.answer_text(3)})

    monkeypatch.setattr(playing, "answer_of", sometimes_mute)
    told = config(steps=9, max_skipped=2, evaluation={"problems": ()})
    outcome = train_rl(told, TextJudge(fail_orders=range(10_000)), ranks)
    assert outcome.steps == 3 and "not one verdict came in 2 steps in a row: not judged" in outcome.reason
    masked = [f"{one['num_masked']} of {one['num_samples']} answers without a reward" for one in steps_of(told)]
    shown = [line for line in capfd.readouterr().err.splitlines() if line.startswith("step ")]
    assert [words in line for words, line in zip(masked, shown, strict=True)] == [True, False, True]


def test_nan_stops_after_so_many_steps_in_a_row_and_spares_the_weights(config, ranks: Ranks) -> None:
    class Poison(TextJudge):
        pass

    told = config(
        steps=6, max_skipped=2, optimizer={"learning_rate": 1e-3}, learning={"aggregation": {"scale": 1e-320}}
    )
    outcome = train_rl(told, Poison(), ranks, show=False)
    assert not outcome.is_good and "2 times in a row" in outcome.reason and outcome.steps < 6
    assert all("not finite" in one["skipped"] for one in steps_of(told)[-2:])
    from kerneldojo.training.models import load_model

    before, after = load_model(told.model.path or ""), load_model(str(told.output / "model"))
    assert all(torch.equal(a, b) for a, b in zip(before.parameters(), after.parameters(), strict=True))


@pytest.mark.parametrize("staleness", [0, 1])
def test_a_broken_model_ends_the_run_in_one_line(staleness: int, config, ranks: Ranks, tmp_path: Path) -> None:
    from kerneldojo.training.models import load_model

    told = config(steps=6, max_skipped=2, staleness=staleness)
    broken = tmp_path / "broken"
    shutil.copytree(str(told.model.path), broken)
    model = load_model(str(broken))
    with torch.no_grad():
        next(model.parameters()).fill_(torch.nan)
    model.save_pretrained(broken)
    told = told.model_copy(update={"model": ModelConfig(path=str(broken))})
    outcome = train_rl(told, TextJudge(), ranks, show=False)
    assert not outcome.is_good and outcome.steps == 2
    assert outcome.reason.endswith("2 steps in a row: the model's log-probabilities are not finite")
    assert all(one["skipped"] and one["num_masked"] == one["num_samples"] for one in steps_of(told))


def test_a_model_that_cannot_be_sampled_is_refused_before_the_first_step(config, ranks: Ranks, tmp_path: Path) -> None:
    from kerneldojo.training.tokens import load_tokenizer

    told, folder = config(), tmp_path / "bloom"
    tokenizer = load_tokenizer(str(told.model.path))
    tokenizer.save_pretrained(folder)
    BloomForCausalLM(BloomConfig(vocab_size=len(tokenizer), hidden_size=32, n_layer=2, n_head=4)).save_pretrained(
        folder
    )
    told = told.model_copy(update={"model": ModelConfig(path=str(folder))})
    with pytest.raises(ConfigError, match=r"^model: the sampler cannot decode bloom: .*$"):
        train_rl(told, TextJudge(), ranks, show=False)


def test_cut_answers_earn_nothing_and_stay(config, ranks: Ranks) -> None:
    told = config(steps=1, play=toy_world.PLAY.model_copy(update={"max_answer_tokens": 4}))
    train_rl(told, TextJudge(), ranks, show=False)
    only = steps_of(told)[0]
    assert only["cut"] > 0.9 and only["num_masked"] == 0
    assert only["samples"]["num_counted"] == only["num_samples"]
    assert only["reward"] < 0.1


VARIANTS: dict[str, dict[str, object]] = {
    "kevin": {
        "learning": {"advantage": {"type": "kevin"}, "returns": {"discount": 0.4}, "prs": "off", "mrs": None},
        "updates_per_step": 2,
        "play": {"reward": {"type": "kevin"}},
    },
    "tritonrl": {
        "learning": {"advantage": {"type": "grpo"}, "hrd": {"alpha": 0.1}},
        "play": {"reward": {"type": "tritonrl"}, "num_turns": 1},
    },
    "kl": {"learning": {"kl": {"weight": 0.1}}},
    "lora": {
        "learning": {"kl": {"weight": 0.1}},
        "model": {"lora": {"rank": 4}},
        "optimizer": {"learning_rate": 0.01},
    },
    "filtered": {"filter_groups": True, "samples_per_prompt": 2, "prompts_per_step": 24},
    "checkpointing": {"model": {"gradient_checkpointing": True}},
    "bfloat16": {"model": {"precision": "bfloat16"}, "learning": {"mrs": {"low": 0.9, "high": 1.1}}},
}


@pytest.mark.parametrize("name", list(VARIANTS))
def test_variants(name: str, config, ranks: Ranks, imitator: Path) -> None:
    base = config(steps=2).model_dump(mode="json")
    for key, value in VARIANTS[name].items():
        base[key] = {**base[key], **value} if isinstance(value, dict) else value
    if base["learning"].get("prs") == "off":
        base["learning"]["prs"] = None
    told = RLConfig.model_validate(base)
    assert train_rl(told, TextJudge(), ranks, show=False).reason == "finished"
    steps = steps_of(told)
    assert all(one["grad_norm"] > 0 for one in steps if not one["skipped"]) and not all(one["skipped"] for one in steps)
    if name == "kl":
        assert steps[0]["kl_to_reference"] == pytest.approx(0.0, abs=1e-6) and steps[1]["kl_to_reference"] > 0
    if name == "lora":
        assert steps[0]["kl_to_reference"] == pytest.approx(0.0, abs=1e-6) and steps[1]["kl_to_reference"] > 0
        assert (told.output / "model" / "adapter_model.safetensors").exists()
        longer = told.model_copy(update={"steps": 3})
        assert train_rl(longer, TextJudge(), ranks, resume=True, show=False).steps == 3
    if name == "filtered":
        assert any(one["samples"]["num_dull"] > 0 for one in steps), [one["samples"] for one in steps]
    if name == "bfloat16":
        assert 0 < steps[0]["mismatch"]["max"] < 0.5


def test_a_run_goes_on_only_as_it_was(config, ranks: Ranks) -> None:
    told = config(steps=1)
    train_rl(told, TextJudge(), ranks, show=False)
    with pytest.raises(ConfigError, match="samples_per_prompt"):
        train_rl(told.model_copy(update={"samples_per_prompt": 4}), TextJudge(), ranks, resume=True, show=False)


def test_a_run_whose_folder_was_moved_goes_on(config, ranks: Ranks) -> None:
    told = config(steps=1, evaluation={"problems": ()})
    train_rl(told, TextJudge(), ranks, show=False)
    moved = told.model_copy(update={"output": told.output.with_name("moved"), "steps": 2})
    told.output.rename(moved.output)
    assert train_rl(moved, TextJudge(), ranks, resume=True, show=False).steps == 2
    assert [one["step"] for one in steps_of(moved)] == [1, 2]


def test_a_run_that_was_refused_for_its_model_can_be_mended(config, ranks: Ranks) -> None:
    told = config(steps=1, evaluation={"problems": ()})
    wrong = told.model_copy(update={"model": ModelConfig(path=str(told.output / "typo"))})
    for resume in (False, True):
        with pytest.raises((OSError, ValueError)):
            train_rl(wrong, TextJudge(), ranks, resume=resume, show=False)
    assert train_rl(told, TextJudge(), ranks, resume=True, show=False).steps == 1


def test_prompts_leave_room_for_an_answer(config, ranks: Ranks) -> None:
    """Without a limit of their own prompts of many turns would outgrow the 512 positions of the toy model."""
    play = toy_world.PLAY.model_copy(update={"max_prompt_tokens": None, "num_turns": 20})
    few = {"steps": 1, "prompts_per_step": 1, "samples_per_prompt": 2, "evaluation": {"problems": ()}}
    told = config(play=play, **few)
    assert train_rl(told, TextJudge(), ranks, show=False).reason == "finished"
    episodes = [json.loads(line) for line in (told.output / "rollouts" / "step-000001.jsonl").read_text().splitlines()]
    longest = max(len(turn["answer"]["prompt_ids"]) for one in episodes for turn in one["turns"])
    assert {len(one["turns"]) for one in episodes} == {20} and 400 < longest <= 512 - 40
    for limit in (None, 400):
        play = toy_world.PLAY.model_copy(update={"max_prompt_tokens": limit, "max_answer_tokens": 512})
        with pytest.raises(ConfigError, match=r"^play\.max_answer_tokens: .*answers of 512 do not fit the model"):
            train_rl(config(name=f"refused-{limit}", play=play), TextJudge(), ranks, show=False)


def test_prompts_of_which_none_fits_end_the_run(config, ranks: Ranks) -> None:
    play = toy_world.PLAY.model_copy(update={"max_prompt_tokens": 3})
    outcome = train_rl(config(steps=9, max_skipped=2, play=play), TextJudge(), ranks, show=False)
    assert outcome.steps == 2 and outcome.reason.endswith("no problem's prompt fits play.max_prompt_tokens")


def test_arguments_that_a_chat_template_cannot_take_are_told(config, ranks: Ranks) -> None:
    told = config(play=toy_world.PLAY.model_copy(update={"template": {"messages": 3}}))
    with pytest.raises(ConfigError, match=r"play\.template: ") as caught:
        train_rl(told, TextJudge(), ranks, show=False)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("service", [None, "http://127.0.0.1:9"])
@pytest.mark.parametrize("device", ["model:zx81", "zx81"])
def test_a_judging_device_that_nobody_has_is_told(device: str, service: str | None, config) -> None:
    told = config(play=toy_world.PLAY.model_copy(update={"device": device}), judge={"service": service})
    with pytest.raises(ConfigError, match=r"play\.device: .*zx81"):
        open_executor(told)


def test_a_folder_for_verdicts_that_cannot_be_is_told(config, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = config(judge={"cache": tmp_path / "file" / "verdicts"})
    for key, one in (("judge.cache", told), ("output", config(name="file/run"))):
        with pytest.raises(ConfigError, match=rf"^{key}: cannot write "):
            open_executor(one)


def test_a_gpu_that_is_not_here_may_be_at_a_service(config) -> None:
    told = config(play=toy_world.PLAY.model_copy(update={"device": "cuda:99"}))
    with pytest.raises(ConfigError, match=r"play\.device: there is no CUDA device 99"):
        open_executor(told)
    with pytest.raises(ClientError):
        open_executor(told.model_copy(update={"judge": JudgeConfig(service="http://127.0.0.1:9")}))


@pytest.mark.parametrize("address", ["foo", "http://", "http://host:port"])
def test_an_address_that_is_none_is_told(address: str, config) -> None:
    with pytest.raises(ConfigError, match=r"judge\.service: .* is not the address of a service"):
        open_executor(config(judge={"service": address}))
