"""Configurations: every recipe can be used as it is, and a mistake is told in one line that names its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from kerneldojo.algorithms import DR_KERNEL, KEVIN, KevinConfig, TRLOOConfig
from kerneldojo.episodes import PlayConfig
from kerneldojo.episodes.prompts import task
from kerneldojo.problems.suite import load_suite
from kerneldojo.training.config import RLConfig, SFTConfig
from kerneldojo.training.settings import ConfigError, load_config

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.toml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_can_be_used(path: Path) -> None:
    kind = SFTConfig if path.stem.endswith("sft") else RLConfig
    told = load_config(kind, path)
    assert kind.model_validate(told.model_dump(mode="json")) == told


def test_recipes_have_the_papers_settings() -> None:
    folder = RECIPES[0].parent
    dr_kernel = load_config(RLConfig, folder / "dr-kernel-qwen3-8b-rl.toml")
    assert dr_kernel.learning == DR_KERNEL and isinstance(dr_kernel.learning.advantage, TRLOOConfig)
    assert (dr_kernel.prompts_per_step, dr_kernel.samples_per_prompt, dr_kernel.play.num_turns) == (16, 16, 3)
    kevin = load_config(RLConfig, folder / "kevin-qwen3-14b-rl.toml")
    assert kevin.learning == KEVIN and isinstance(kevin.learning.advantage, KevinConfig)
    assert kevin.optimizer.max_grad_norm == 0.05
    tritonrl = load_config(RLConfig, folder / "tritonrl-qwen3-8b-rl.toml")
    assert tritonrl.learning.hrd is not None and tritonrl.learning.hrd.alpha == 0.1


def test_what_is_written_down_of_a_run_has_no_token(tmp_path: Path) -> None:
    """It goes into the run's folder and to trackers; the trainer itself still knows it."""
    told = {"output": tmp_path, "problems": ["katas:1"], "model": {"path": "nowhere"}}
    config = RLConfig.model_validate({**told, "judge": {"service": "http://trainer:SECRET-TOKEN@host:8000"}})
    assert config.judge.service == "http://trainer:SECRET-TOKEN@host:8000"
    assert config.model_dump(mode="json")["judge"]["service"] == "http://host:8000"
    assert "SECRET" not in config.model_dump_json()
    assert RLConfig.model_validate(told).model_dump(mode="json")["judge"]["service"] is None


def test_overrides_reach_any_depth() -> None:
    path = RECIPES[0].parent / "laptop-rl.toml"
    told = load_config(
        RLConfig,
        path,
        [
            "steps=5",
            "sampling.temperature=0.5",
            "learning.prs=none",
            "model.path=elsewhere",
            'play.reward.type="kevin"',
        ],
    )
    assert told.steps == 5 and told.sampling.temperature == 0.5
    assert told.learning.prs is None and told.learning.mrs is not None
    assert told.model.path == "elsewhere" and told.play.reward.type == "kevin"


def test_a_path_begins_at_home_where_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a file, and behind `--set KEY=`, no shell has seen it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "run.toml"
    file.write_text('output = "~/run"\ndata = ["~/a", "b~/~"]\nmodel.path = "~/model"\n')
    sft = load_config(SFTConfig, file)
    assert (sft.output, sft.data) == (tmp_path / "run", (tmp_path / "a", Path("b~/~")))
    assert sft.model.path == str(tmp_path / "model")
    told = ["output=~", "judge.cache=~/verdicts", "sampling.served.url=http://a", "sampling.served.weights=~/weights"]
    rl = load_config(RLConfig, RECIPES[0].parent / "laptop-rl.toml", told)
    assert rl.sampling.served is not None
    assert (rl.output, rl.judge.cache, rl.sampling.served.weights) == (
        tmp_path,
        tmp_path / "verdicts",
        tmp_path / "weights",
    )


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("stepz=5", "stepz: unknown key"),
        ("output=", "output: is empty"),
        ("judge.cache=", "judge.cache: is empty"),
        ("output=~nobody-of-this-name/run", "output: ~nobody-of-this-name/run: there is no such home"),
        ("model.path=~nobody-of-this-name", "model.path: ~nobody-of-this-name: there is no such home"),
        ("steps=many", "steps: "),
        ("steps=0", "steps: "),
        ("learning.clip.high=-1", "learning.clip.high: "),
        ("learning.advantage.type=ppo", "learning.advantage: "),
        ("play.num_turns=0", "play.num_turns: "),
        ("model.path=none", "model.path is missing"),
        ("play.device=cpu", "learning.prs"),
        ("steps", "--set steps: expected dotted.key=value"),
        ("steps.more=1", "--set steps.more=1: steps is a value"),
        ("optimizer.learning_rate=nan", "optimizer.learning_rate: "),
        ("optimizer.learning_rate=inf", "optimizer.learning_rate: "),
        ("optimizer.weight_decay=Infinity", "optimizer.weight_decay: "),
        ("optimizer.betas=[2.0,0.9]", "optimizer.betas.0: "),
        ("sampling.temperature=inf", "sampling.temperature: "),
        ("learning.aggregation.scale=inf", "learning.aggregation.scale: "),
        ("play.judge_timeout=inf", "play.judge_timeout: "),
        ("seed=-1", "seed: "),
        ("steps=true", "steps: "),
        ("staleness=true", "staleness: "),
        ("problems=graphs:train", "problems: Input should be a valid list"),
        ('problems=["graphs:test"]', "problems: graphs:test is held out"),
        ('problems=[" graphs:validation"]', "graphs:validation is held out"),
        ('evaluation.problems=["graphs:test"]', "evaluation.problems: graphs:test is opened when a run is over"),
        ("packing.row_tokens=8192", "packing: row_tokens (8192) is larger than micro_batch_tokens"),
        ("samples_per_prompt=1", "toml: samples_per_prompt = 1: "),
        ("model.lora.dropout=0.1", "model.lora.dropout: "),
        ("learning.kl=0.1", "learning.kl: Input should be a valid table"),
        ("model.new=huge", "model.new: neither a table nor one of our sizes: laptop, gpu, gpu-large (given: 'huge')"),
        ("model.new=3", "model.new: neither a table nor one of our sizes: laptop, gpu, gpu-large (given: 3)"),
        ("model.new={hiden=8}", "model.new.hiden: unknown key"),
        ("play.num_turns=true", "play.num_turns: "),
        ("sampling.engine.max_rows=true", "sampling.engine.max_rows: "),
        ('learning.advantage={type="grpo",std=3}', "toml: learning.advantage.std: "),
        ('play.reward={type="kevin",corect=1}', "toml: play.reward.corect: unknown key"),
        ("learning.advantage.std=true", "learning.advantage: type is missing, which says what the others mean"),
        ("learning.advantage.type=ppo", "learning.advantage: type 'ppo' is none of 'trloo', 'grpo', "),
    ],
)
def test_a_mistake_is_one_line_that_names_its_key(override: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(RLConfig, RECIPES[0].parent / "laptop-rl.toml", [override])
    assert key in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("epochs=inf", "epochs: "),
        ("seed=-1", "seed: "),
        ("evaluate_every=true", "evaluate_every: "),
        ("batch_tokens=100", "batch_tokens (100) is smaller than packing.micro_batch_tokens"),
        ('keep.statuses=["fast"]', "keep.statuses.0: "),
        ("model.lora.rank=4", "model: lora: a model from nothing is in no folder"),
    ],
)
def test_sft_is_as_strict(override: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(SFTConfig, RECIPES[0].parent / "laptop-sft.toml", [override])
    assert key in str(caught.value) and "\n" not in str(caught.value)


def test_mistakes_are_counted_by_key() -> None:
    """A value that may be of two types is wrong twice, and one mistake."""
    folder = RECIPES[0].parent
    for overrides, more in (
        (["model.new.hidden=33"], ""),
        (['keep.statuses=["fast"]'], ""),
        (['keep.statuses=["fast"]', "epochs=0", "seed=-1"], "; and 2 more"),
    ):
        with pytest.raises(ConfigError) as caught:
            load_config(SFTConfig, folder / "laptop-sft.toml", overrides)
        assert str(caught.value).partition(")")[2].endswith(more) and ("more" in str(caught.value)) is bool(more)


def test_a_truth_value_is_one() -> None:
    path = RECIPES[0].parent / "laptop-rl.toml"
    told = load_config(RLConfig, path, ["filter_groups=true", "judge.after_writing=false", "log.tensorboard=false"])
    assert told.filter_groups is True and told.judge.after_writing is False and told.log.tensorboard is False
    thinking = load_config(RLConfig, path, ["play.template.enable_thinking=false"]).play.template
    assert thinking == {"enable_thinking": False}


def test_a_table_of_the_optimizer_tells_the_learning_rate(tmp_path: Path) -> None:
    """Its default belongs to models from nothing: a thousand times that of the papers."""
    path = tmp_path / "rl.toml"
    path.write_text('output = "out"\nproblems = ["katas"]\nmodel = { path = "model" }\nplay = { device = "cuda" }\n')
    assert load_config(RLConfig, path).optimizer.learning_rate == 1e-6
    with pytest.raises(ConfigError, match=r"toml: optimizer\.learning_rate is missing"):
        load_config(RLConfig, path, ["optimizer.max_grad_norm=0.5"])


def test_one_answer_a_prompt_is_enough_where_turns_are_compared() -> None:
    path = RECIPES[0].parent / "laptop-rl.toml"
    for more in (
        ["learning.advantage.type=trloo", "learning.advantage.alone=return"],
        ["learning.advantage.type=kevin", "play.num_turns=2"],
    ):
        assert load_config(RLConfig, path, ["samples_per_prompt=1", *more]).samples_per_prompt == 1


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        load_config(RLConfig, tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("steps = = 3")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_config(RLConfig, tmp_path / "bad.toml")


@pytest.mark.parametrize("name", ["dr-kernel-qwen3-8b", "dr-kernel-qwen3-14b", "tritonrl-qwen3-8b"])
def test_rl_asks_as_the_cold_start_was_asked(name: str) -> None:
    """`dojo collect` asks for a plan; a policy that is asked otherwise in RL than in SFT is asked for something new."""
    play = load_config(RLConfig, RECIPES[0].parent / f"{name}-rl.toml").play
    problem = load_suite("katas:1", "full")[0]
    assert task(problem, play) == task(problem, PlayConfig(device="cuda", ask_plan=True))
