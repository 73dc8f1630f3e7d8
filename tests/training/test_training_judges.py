"""Which devices judge, on a machine with GPUs of which some train; and for real where there are none."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
import toy_world

from kerneldojo.training.config import RLConfig
from kerneldojo.training.judges import NoJudge, cores_of_judges, judging_devices, open_executor
from kerneldojo.training.parallel import Ranks, start_ranks
from kerneldojo.training.settings import ConfigError, load_config

RECIPE = Path(__file__).parents[2] / "recipes" / "h200-rl.toml"
CPU = Ranks(0, 1, torch.device("cpu"))
FIRST, THIRD, FOUR = (Ranks(0, count, torch.device("cuda", index=index)) for count, index in ((1, 0), (1, 2), (4, 0)))


def gpus(*numbers: int) -> list[str]:
    return [f"cuda:{number}" for number in numbers]


def config(*overrides: str, device: str = "cuda") -> RLConfig:
    return load_config(RLConfig, RECIPE, [f"play.device={device}", *overrides])


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with eight GPUs, as far as names go."""
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(
    ("told", "ranks", "judging"),
    [
        ("none", FIRST, ["cuda"]),
        ('["cuda"]', FIRST, gpus(*range(8))),
        ("cuda:5", FIRST, gpus(5)),
        ('["cuda:1", "cuda:2", "cuda:1"]', FIRST, gpus(1, 2)),
        ("others", FIRST, gpus(1, 2, 3, 4, 5, 6, 7)),
        ("others", THIRD, gpus(0, 1, 3, 4, 5, 6, 7)),
        ("others", FOUR, gpus(4, 5, 6, 7)),
        ("others", CPU, gpus(*range(8))),
        ("3", FIRST, gpus(1, 2, 3)),
        ("3", THIRD, gpus(0, 1, 3)),
        ("4", FOUR, gpus(4, 5, 6, 7)),
    ],
)
def test_judges_are_named_or_counted(told: str, ranks: Ranks, judging: list[str]) -> None:
    assert judging_devices(config(f"judge.devices={told}"), ranks) == judging
    if told != "none":
        assert judging_devices(config(f"judge.devices={told}", device="auto"), ranks) == judging


@pytest.mark.usefixtures("eight")
def test_two_steps_at_once_take_the_others_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = config("staleness=1")
    assert judging_devices(ahead, FOUR) == gpus(4, 5, 6, 7)
    assert judging_devices(ahead, CPU) == ["cuda"], "nobody is in the judges' way"
    assert judging_devices(config("staleness=1", device="cuda:0"), FIRST) == ["cuda:0"], "it was told, and is refused"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert judging_devices(ahead, FOUR) == ["cuda"], "there is no other, which is refused later"


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(
    ("told", "device", "ranks", "words"),
    [
        ("8", "cuda", FIRST, "8 are asked for, and of this machine's 8 GPUs the policy leaves 7 free"),
        ("others", "cuda", Ranks(0, 8, torch.device("cuda", index=0)), "'others' is asked for, and of"),
        ("cuda:8", "cuda", FIRST, "there is no CUDA device 8: this machine has 8"),
        ("model:zx81", "cuda", FIRST, "zx81"),
        ("cuda:1", "cuda:0", FIRST, "cuda:1 would have nothing to judge, for play.device is 'cuda:0'"),
        ("cpu", "model:h100", FIRST, "cpu would have nothing to judge"),
        ('["cuda:1", "cpu"]', "auto", FIRST, "cpu would have nothing to judge"),
        ('["model:h200", "model:h100"]', "auto", FIRST, "model:h100 would have nothing to judge"),
    ],
)
def test_a_judge_that_cannot_be_is_told_in_one_line(told: str, device: str, ranks: Ranks, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        judging_devices(config(f"judge.devices={told}", device=device), ranks)
    assert str(caught.value).startswith("judge.devices: ") and words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(
    ("told", "ranks", "num_cores", "num_spared"),
    [
        (["staleness=1"], FIRST, 128, 2),
        (["staleness=1"], FOUR, 128, 8),
        (["staleness=1"], FOUR, 16, 4),  # a quarter of them all
        (["judge.devices=others"], FIRST, 128, 2),
        (["judge.devices=others"], FOUR, 128, 0),  # which are judged in lockstep: they rest meanwhile
        ([], FIRST, 128, 0),  # cuda:0 judges, too, when the policy is at rest
        (["judge.after_writing=false"], FIRST, 128, 2),
        (["judge.devices=others", "judge.after_writing=true"], FIRST, 128, 0),
        (["judge.spared_cores=3"], FIRST, 128, 4),  # whole cores
        (["judge.spared_cores=3"], FOUR, 128, 12),
        (["staleness=1", "judge.spared_cores=0"], FOUR, 128, 0),
        (["play.device=model:h100"], CPU, 128, 2),
        (["play.device=model:h100"], CPU, 8, 2),
        (["play.device=model:h100"], CPU, 7, 0),
    ],
)
def test_judges_leave_cores_to_a_policy_that_is_at_work(
    told: list[str], ranks: Ranks, num_cores: int, num_spared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(num_cores)))
    monkeypatch.setattr("kerneldojo.devices.cores.siblings_of", lambda core: {core})  # neighbours, that is
    one = config(*told)
    cores = cores_of_judges(one, ranks, judging_devices(one, ranks))
    assert cores == (tuple(range(num_spared, num_cores)) if num_spared else ())


def test_judges_cannot_leave_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    one = config("judge.spared_cores=2", "staleness=1", device="model:h100")
    with pytest.raises(
        ConfigError, match=r"judge\.spared_cores: 2 for each of 4 ranks are all of .* 8 cores"
    ) as caught:
        cores_of_judges(one, FOUR, ["model:h100"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("told", ["gpu:1", "cuda:", "cuda:-1", "0", "-2", "true", "1.5", "[]", "[1]", '["others"]'])
def test_what_names_no_device_is_told_in_one_line(told: str) -> None:
    with pytest.raises(ConfigError, match=r"judge\.devices: neither names .*nor \"others\", nor a number") as caught:
        config(f"judge.devices={told}")
    assert "\n" not in str(caught.value)


def test_judges_are_here_or_at_a_service() -> None:
    with pytest.raises(ConfigError, match="judge: service and devices contradict each other"):
        config("judge.devices=others", "judge.service=http://far.away:8000")


def test_it_survives_the_record_of_a_run() -> None:
    for told in ("none", "others", "2", '["cuda:1"]'):
        one = config(f"judge.devices={told}")
        assert RLConfig.model_validate(json.loads(one.model_dump_json())) == one


def test_one_gpu_is_not_for_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="device: cuda:1 is one GPU for 2 processes: say cuda"):
        start_ranks("cuda:1")


def test_only_the_first_of_several_judges(tmp_path: Path) -> None:
    told = toy_world.rl_config(tmp_path / "run", tmp_path, judge={"devices": "model:h100", "slots": 1})
    assert isinstance(open_executor(told, Ranks(1, 2, torch.device("cpu"))), NoJudge)
    executor = open_executor(told, CPU)
    assert [state.name for state in executor.devices()] == ["model:h100"] and executor.num_slots == 1
    executor.close(drain=False)


@pytest.mark.slow
def test_the_named_device_judges_what_ranks_write(tmp_path: Path, imitator: Path) -> None:
    toy_world.write_problems(tmp_path / "problems")
    play = toy_world.PLAY.model_copy(update={"device": "auto", "num_turns": 1})
    told = toy_world.rl_config(
        tmp_path / "run",
        imitator,
        play=play,
        steps=1,
        prompts_per_step=1,
        samples_per_prompt=4,
        evaluation={"problems": ()},
    )
    # TOML has no null, and a recipe leaves out what is not told.
    table = json.loads(told.model_dump_json(exclude_unset=True, exclude={"learning", "play"}))
    table |= {"play": json.loads(play.model_dump_json(exclude_defaults=True)), "output": str(told.output)}
    (tmp_path / "rl.toml").write_text("".join(lines(table)))
    command = [sys.executable, "-m", "kerneldojo.cli", "train", "rl", str(tmp_path / "rl.toml"), "--quiet"]
    toy_world.run_ranks([*command, "--set", "judge.devices=model:a100", "--set", "judge.slots=1"], 2)
    (played,) = (tmp_path / "run" / "rollouts").glob("*.jsonl")
    turns = [json.loads(line)["turns"][0] for line in played.read_text().splitlines()]
    devices = {turn["evaluation"]["device"] for turn in turns if turn["evaluation"] is not None}
    assert len(turns) == 4 and devices == {"model:a100"}
    assert any((tmp_path / "run" / "verdicts").rglob("*")), "no clock has part in these, so the run remembers them"


def lines(table: dict[str, object], name: str = "") -> list[str]:
    """A table as TOML: its own values, then the tables in it."""
    own = [f"{key} = {json.dumps(value)}\n" for key, value in table.items() if not isinstance(value, dict)]
    inner = [line for key, value in table.items() if isinstance(value, dict) for line in lines(value, f"{name}{key}.")]
    return [*([f"[{name[:-1]}]\n"] if name else []), *own, *inner]
