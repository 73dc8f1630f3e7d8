"""What `model` names is what is trained, adapters that have learned included; what cannot be is told in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_world
from pydantic import ValidationError
from toy_world import TextJudge

from kerneldojo.policies.rows import SamplerConfig
from kerneldojo.training.learner import open_learner
from kerneldojo.training.model_config import LoRAConfig, ModelConfig
from kerneldojo.training.models import load_model
from kerneldojo.training.optimizing import OptimizerConfig, check_rows
from kerneldojo.training.parallel import Ranks
from kerneldojo.training.paths import check_path
from kerneldojo.training.rl import train_rl
from kerneldojo.training.settings import ConfigError
from kerneldojo.training.sft import train_sft
from kerneldojo.training.tokens import load_tokenizer


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory, collected: Path, imitator: Path, ranks: Ranks) -> Path:
    """An SFT run with LoRA on top of `imitator`: its `model` is an adapter."""
    output = tmp_path_factory.mktemp("adapted") / "run"
    model = ModelConfig(path=str(imitator), lora=LoRAConfig(rank=4))
    told = toy_world.sft_config(output, collected, model=model, epochs=1, optimizer={"learning_rate": 0.01})
    assert train_sft(told, ranks, show=False).reason == "finished"
    return output / "model"


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(input_ids=torch.arange(10, 40)[None]).logits


def opened(ranks: Ranks, **told: object):
    return open_learner(ModelConfig.model_validate(told), OptimizerConfig(), ranks)


def test_an_adapter_is_trained_on(adapted: Path, imitator: Path, ranks: Ranks, tmp_path: Path) -> None:
    known = logits(load_model(str(adapted)))
    assert not torch.allclose(known, logits(load_model(str(imitator))), atol=1e-2)
    for lora in (None, {"rank": 4}):
        learner = opened(ranks, path=str(adapted), lora=lora)
        assert torch.allclose(logits(learner.model), known, atol=1e-5)
        assert {name for name, one in learner.model.named_parameters() if one.requires_grad} == {
            name for name, _ in learner.model.named_parameters() if "lora_" in name
        }
        folder = tmp_path / f"again-{lora is None}"
        learner.gather_weights()(folder)
        assert torch.allclose(logits(load_model(str(folder))), known, atol=1e-5)
        assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == str(imitator)


def test_dropout_is_a_matter_of_training(adapted: Path, ranks: Ranks) -> None:
    for lora, rate in ((None, 0.0), ({"rank": 4, "dropout": 0.25}, 0.25)):
        settings = adapted.parent.parent / f"dropped-{rate}"
        shutil.copytree(adapted, settings)
        told = json.loads((settings / "adapter_config.json").read_text())
        (settings / "adapter_config.json").write_text(json.dumps({**told, "lora_dropout": 0.5}))
        model = opened(ranks, path=str(settings), lora=lora).model
        found = {one.p for one in model.modules() if isinstance(one, torch.nn.Dropout)}
        assert found == ({rate} if rate else set())


def test_a_base_model_learns_of_the_end_that_its_chat_template_writes(
    imitator: Path, ranks: Ranks, tmp_path: Path
) -> None:
    """Base models end with a token of their own; whoever samples has to stop at the template's, too."""
    base = tmp_path / "base"
    shutil.copytree(imitator, base)
    tokenizer: Any = load_tokenizer(str(base))
    end, other = tokenizer.eos_token_id, tokenizer.pad_token_id
    tokenizer.eos_token = tokenizer.pad_token
    tokenizer.save_pretrained(base)
    for name in ("config.json", "generation_config.json"):
        told = json.loads((base / name).read_text())
        (base / name).write_text(json.dumps({**told, "eos_token_id": other}))
    learner = open_learner(ModelConfig(path=str(base)), OptimizerConfig(), ranks, sampler=SamplerConfig())
    assert learner.sampler is not None and set(learner.sampler.end_ids) == {end, other}
    learner.gather_weights()(tmp_path / "saved")
    told = json.loads((tmp_path / "saved" / "generation_config.json").read_text())
    assert set(told["eos_token_id"]) == {end, other}


def test_new_adapters_begin_from_the_runs_seed(imitator: Path, ranks: Ranks) -> None:
    def begun(seed: int) -> list[torch.Tensor]:
        torch.rand(1)  # What else has been drawn does not matter.
        told = ModelConfig.model_validate({"path": str(imitator), "lora": {"rank": 4}})
        learner = open_learner(told, OptimizerConfig(), ranks, seed=seed)
        return [one for name, one in learner.model.named_parameters() if "lora_A" in name]

    first, again, other = begun(1), begun(1), begun(2)
    assert all(map(torch.equal, first, again))
    assert not any(map(torch.equal, first, other))


@pytest.mark.parametrize(
    ("lora", "words"),
    [
        ({"rank": 8}, "rank is 8, but 4"),
        ({"rank": 4, "alpha": 1}, "alpha"),
        ({"rank": 4, "targets": ["q_proj"]}, "targets"),
    ],
)
def test_an_adapter_is_not_trained_on_as_another(lora: dict, words: str, adapted: Path, ranks: Ranks) -> None:
    with pytest.raises(ConfigError, match=rf"^model\.lora: {words}") as caught:
        opened(ranks, path=str(adapted), lora=lora)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("lora", [None, {"rank": 4}])
def test_rl_goes_on_from_sft_with_adapters(lora: dict | None, adapted: Path, ranks: Ranks, tmp_path: Path) -> None:
    toy_world.write_problems(tmp_path / "problems")
    changes = {"optimizer": {"learning_rate": 0.01}, "learning": {"kl": {"weight": 0.1}}}
    base = toy_world.rl_config(tmp_path / "run", adapted, steps=2, **changes)
    told = base.model_copy(update={"model": ModelConfig.model_validate({"path": str(adapted), "lora": lora})})
    assert train_rl(told, TextJudge(), ranks, show=False).reason == "finished"
    longer = told.model_copy(update={"steps": 3})
    assert train_rl(longer, TextJudge(), ranks, resume=True, show=False).steps == 3
    lines = [json.loads(line) for line in (told.output / "metrics.jsonl").read_text().splitlines()]
    steps = [one for one in lines if "reward" in one]
    assert steps[0]["kl_to_reference"] == pytest.approx(0.0, abs=1e-6), "what SFT made is what RL is held to"
    assert all(one["kl_to_reference"] > 1e-6 for one in steps[1:])
    assert not torch.allclose(
        logits(load_model(str(told.output / "model"))), logits(load_model(str(adapted))), atol=1e-4
    )


def test_a_model_that_cannot_be_loaded_is_told_in_one_line(
    imitator: Path, ranks: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")

    def broken(name: str, **files: bytes | None) -> str:
        folder = shutil.copytree(imitator, tmp_path / name)
        for stem, content in files.items():
            path = next(folder.glob(f"{stem}.*"))
            path.unlink() if content is None else path.write_bytes(content)
        return str(folder)

    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    weights = (imitator / "model.safetensors").read_bytes()
    mistakes = {
        "": "is empty",
        "empty": "empty has no config.json and no adapter_config.json",
        "file": "file is not a folder",
        "runs/misspelt/model": "there is no folder runs/misspelt/model",
        "empty/misspelt": "there is no folder empty/misspelt",
        "misspelt": "there is no folder misspelt",
        "./misspelt": r"there is no folder \./misspelt",
        "~/misspelt": f"there is no folder {Path.home()}/misspelt",
        broken("shapeless", config=b"{}"): "cannot load the model of .*shapeless: ",
        broken("unreadable", config=b"{"): "cannot load the .* of .*unreadable: ",
        broken("silent", tokenizer=None, tokenizer_config=None): "cannot load the tokenizer of .*silent: ",
        broken("cut", model=weights[: len(weights) // 2]): "cannot load the model of .*cut: ",
    }
    for path, words in mistakes.items():
        with pytest.raises(ConfigError, match=f"^model\\.path: {words}") as caught:
            opened(ranks, path=path)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_layers_that_are_not_there_are_told_in_one_line(imitator: Path, ranks: Ranks) -> None:
    with pytest.raises(ConfigError, match=r"^model\.lora\.targets: .*nope") as caught:
        opened(ranks, path=str(imitator), lora={"targets": ["nope"]})
    assert "\n" not in str(caught.value)
    with pytest.raises(ValidationError, match="not a regular expression"):
        LoRAConfig(targets="([")


def test_names_of_the_hub_are_left_to_it() -> None:
    for name in ("Qwen/Qwen2.5-0.5B", "deepseek-ai/DeepSeek_V3.1"):
        check_path(name)


def test_an_adapter_whose_model_is_gone_says_so(adapted: Path, ranks: Ranks, tmp_path: Path) -> None:
    folder = shutil.copytree(adapted, tmp_path / "orphan")
    told = json.loads((folder / "adapter_config.json").read_text())
    for base, words in (
        (str(tmp_path / "gone"), "belongs to .*gone"),
        (None, "does not say"),
        (str(folder), "belongs to another"),
    ):
        (folder / "adapter_config.json").write_text(json.dumps({**told, "base_model_name_or_path": base}))
        with pytest.raises(ConfigError, match=rf"^model\.path: the adapter in .*orphan {words}"):
            opened(ranks, path=str(folder))


def test_a_cold_start_teaches_tokens_that_a_pretrained_model_lacks(
    imitator: Path, collected: Path, ranks: Ranks, tmp_path: Path
) -> None:
    marks = ("<idea>", "</idea>")
    learner = opened(ranks, path=str(imitator), new_tokens=marks)
    known = load_model(str(imitator))
    before = known.get_input_embeddings().weight
    ids = [learner.tokenizer.encode(mark, add_special_tokens=False) for mark in marks]
    assert ids == [[len(before)], [len(before) + 1]]
    rows = learner.model.get_input_embeddings().weight
    assert len(rows) == len(before) + 2 and torch.equal(rows[: len(before)], before)
    assert torch.allclose(rows[-2:], before.mean(0).expand(2, -1), atol=1e-7)
    assert learner.tokenizer.decode(ids[0], skip_special_tokens=True) == marks[0]
    # Trained, saved, resumed and loaded by RL they stay what they are, and a checkpoint's spare rows are used first.
    told = toy_world.sft_config(
        tmp_path / "run", collected, model=ModelConfig(path=str(imitator), new_tokens=marks), epochs=0.5
    )
    train_sft(told, ranks, show=False)
    more = told.model_copy(update={"epochs": 1.0})
    assert train_sft(more, ranks, resume=True, show=False).reason == "finished"
    again = opened(ranks, path=str(told.output / "model"), new_tokens=(*marks, "<third>"))
    assert [again.tokenizer.encode(mark, add_special_tokens=False) for mark in marks] == ids
    assert len(again.model.get_input_embeddings().weight) == len(before) + 3


def test_new_tokens_need_a_model_that_can_learn_them(adapted: Path, ranks: Ranks) -> None:
    for told in ({"new_tokens": ["<idea>"]}, {"new_tokens": ["<idea>"], "path": "a/b", "lora": {}}):
        with pytest.raises(ValidationError, match="new_tokens: "):
            ModelConfig.model_validate(told)
    with pytest.raises(ConfigError, match=r"^model\.new_tokens: adapters"):
        opened(ranks, path=str(adapted), new_tokens=["<idea>"])


def test_muon_is_refused_where_a_matrix_has_no_row_for_every_rank() -> None:
    thin = torch.nn.Sequential(torch.nn.Linear(8, 3), torch.nn.Linear(3, 8))
    check_rows(thin, OptimizerConfig(matrices="muon"), 3)
    check_rows(thin, OptimizerConfig(), 4)
    with pytest.raises(ConfigError, match=r"^optimizer.matrices: .* has 3 for 4 ranks$"):
        check_rows(thin, OptimizerConfig(matrices="muon"), 4)
