"""Ranks that share a model have the one that a single process has, and none of them ever has all of it."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import opening_ranks
import pytest
import torch
import toy_world

from kerneldojo.policies.weights import make_room
from kerneldojo.training.adapters import with_lora
from kerneldojo.training.checkpoints import Checkpoints
from kerneldojo.training.learner import open_learner
from kerneldojo.training.model_config import LoRAConfig, ModelConfig, NewModelConfig
from kerneldojo.training.models import new_model
from kerneldojo.training.optimizing import OptimizerConfig
from kerneldojo.training.packing import Sample, make_batches
from kerneldojo.training.parallel import Ranks, whole_model
from kerneldojo.training.skeleton import open_once, skeleton_of, take_weights


def shape_of(family: str) -> NewModelConfig:
    return NewModelConfig.model_validate(toy_world.TINY.model_dump() | {"family": family})


def untied(family: str, folder: Path) -> str:
    """A model of that family whose output layer is its own."""
    tokenizer = toy_world.tokenizer()
    config = new_model(shape_of(family), tokenizer).config
    config.tie_word_embeddings = False
    torch.manual_seed(3)
    kind = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}[family]
    import transformers

    getattr(transformers, kind)(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def interrupted(told: dict, ranks: Ranks, folder: Path) -> str:
    """The checkpoint of a run that has taken one step."""
    learner = open_learner(ModelConfig.model_validate(told), OptimizerConfig(), ranks)
    batches = make_batches([Sample((5, 6), (7, 8, 9))], row_tokens=16, batch_tokens=16)
    loss = learner.add_gradients(batches, lambda _, log_probs: -log_probs.mean())
    assert learner.step(0, 0.0, loss) is not None
    return str(Checkpoints(folder).save(1, learner.gather_weights(), learner.state()))


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory, imitator: Path, ranks: Ranks) -> dict[str, dict]:
    """What is opened, by name: a vocabulary of 512, which four divide, and others, which they do not."""
    folder = tmp_path_factory.mktemp("models")
    adapters = {"path": str(imitator), "lora": {"rank": 2}}  # of four ranks, two have nothing of such a matrix
    open_learner(ModelConfig.model_validate(adapters), OptimizerConfig(), ranks).gather_weights()(folder / "adapter")
    whole = {"path": untied("qwen3", folder / "qwen3"), "new_tokens": ["<new>", "</new>"]}
    return {
        "llama": {"model": {"path": str(imitator), "precision": "bfloat16"}, "samples": True},
        "llama untied": {"model": {"path": untied("llama", folder / "llama")}},
        "qwen3": {"model": {"new": shape_of("qwen3").model_dump()}, "samples": True},
        "qwen3 untied": {"model": {**whole, "precision": "bfloat16", "residual": "float32"}, "samples": True},
        "tokens": {"model": {"path": str(imitator), "new_tokens": ["<new>", "</new>"]}},
        "adapters": {"model": adapters, "samples": True},
        "adapter": {"model": {"path": str(folder / "adapter")}},
        "resumed": {"model": whole, "checkpoint": interrupted(whole, ranks, folder / "whole")},
        "resumed adapters": {"model": adapters, "checkpoint": interrupted(adapters, ranks, folder / "adapters")},
    }


def test_any_number_of_ranks_opens_what_one_process_opens(tmp_path: Path, cases: dict[str, dict]) -> None:
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    command = [sys.executable, opening_ranks.__file__, str(tmp_path)]
    subprocess.run(command, check=True, timeout=400, env={**os.environ, "OMP_NUM_THREADS": "1"})
    alone, two, four = (json.loads((tmp_path / f"{count}.json").read_text()) for count in (1, 2, 4))
    for name, case in cases.items():
        assert all(told[name].pop("mismatch", 0.0) < 4e-3 for told in (alone, two, four)), "in nats a token"
        if case["model"].get("precision") == "bfloat16":  # one process keeps more in float32 than ranks gather in it
            assert two[name].pop("samples") == four[name].pop("samples") and alone[name].pop("samples")
        for count, told in ((2, two), (4, four)):
            assert told[name] == alone[name], (name, count)
            assert files(tmp_path / f"{name} {count}") == files(tmp_path / f"{name} 1"), (name, count)
        assert alone[name]["buffers"], "positions are numbers that no checkpoint has"
        assert alone[name]["is tied"] is not ("untied" in name or name == "resumed")
        assert (len(alone[name]["trained"]) == len(alone[name]["weights"])) is not ("adapter" in name)
    assert len(alone["resumed"]["optimizer"]) == len(alone["resumed"]["weights"])
    assert set(alone["resumed adapters"]["optimizer"]) == {f"model.{n}" for n in alone["resumed adapters"]["trained"]}
    assert "model.lora.targets" in alone["mistake"]["told"][0]
    assert four["mistake"]["told"] == 2 * two["mistake"]["told"] == 4 * alone["mistake"]["told"]
    largest = 4 * opening_ranks.LARGE.hidden * opening_ranks.LARGE.intermediate
    for growth, whole, share in four["memory"]["told"][1:]:  # the first one's host has the model as it was opened
        assert whole // 5 < share < whole // 3 and largest < whole // 30
        assert growth < whole // 2, "a rank has its share, and one weight at a time"


@pytest.mark.gpu
def test_gpus_open_what_one_opens(tmp_path: Path, cases: dict[str, dict]) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    subprocess.run([sys.executable, opening_ranks.__file__, str(tmp_path), "cuda", "1", "2"], check=True, timeout=280)
    alone, two = (json.loads((tmp_path / f"{count}.json").read_text()) for count in (1, 2))
    for name in cases:
        for told in (alone, two):  # what is sampled differs by rounding: one process has more rows in a product
            assert told[name].pop("mismatch", 0.0) < 2e-2, "in nats a token"
            told[name].pop("samples", None)
        assert two[name] == alone[name], name
        assert files(tmp_path / f"{name} 2") == files(tmp_path / f"{name} 1"), name
    assert two["mistake"]["told"] == 2 * alone["mistake"]["told"]
    for growth, whole, share in two["memory"]["told"]:
        assert whole // 3 < share < 2 * whole // 3
        assert growth < share + whole // 5, "a GPU has its share, and one weight at a time"


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("lora", [False, True])
def test_a_skeleton_is_all_but_the_weights(family: str, lora: bool) -> None:
    model, wrapper = new_model(shape_of(family), toy_world.tokenizer()), None
    if lora:
        wrapper = with_lora(model, LoRAConfig(rank=2))
        model = wrapper.get_base_model()
    before = {name: one.clone() for name, one in model.named_parameters()}
    bones, cover = pickle.loads(pickle.dumps(skeleton_of(model, wrapper)))
    told = [[(n, p.shape, p.dtype, p.requires_grad) for n, p in one.named_parameters()] for one in (model, bones)]
    assert told[0] == told[1]
    assert all(one.is_meta for one in bones.parameters())
    assert bones.lm_head.weight is bones.model.embed_tokens.weight
    assert (cover is None) is not lora and (cover is None or cover.get_base_model() is bones)
    assert len(pickle.dumps(skeleton_of(model, wrapper))) < 4 * sum(one.numel() for one in before.values())
    assert all(one.equal(before[name]) and not one.is_meta for name, one in model.named_parameters())
    # What is taken out of the model itself leaves the same behind, and room for the same.
    taken = take_weights(model)
    assert all(taken[name].equal(one) for name, one in before.items()) and len(taken) == len(before)
    assert told[1] == [(n, p.shape, p.dtype, p.requires_grad) for n, p in model.named_parameters() if p.is_meta]
    assert take_weights(bones) == {}
    make_room(bones, torch.device("cpu"))
    assert told[1] == [(n, p.shape, p.dtype, p.requires_grad) for n, p in bones.named_parameters() if not p.is_meta]
    assert bones.lm_head.weight is bones.model.embed_tokens.weight
    found = dict(bones.named_buffers())
    assert found and all(found[name].equal(one) for name, one in model.named_buffers())


def test_only_the_first_keeps_the_gathered_whole(ranks: Ranks) -> None:
    model = new_model(toy_world.TINY, toy_world.tokenizer())
    assert set(whole_model(model, ranks)) == set(model.state_dict())
    assert whole_model(model, Ranks(1, 2, ranks.device)) == {}


def test_one_process_opens_its_own(ranks: Ranks) -> None:
    model = new_model(toy_world.TINY, toy_world.tokenizer())
    assert open_once(ranks, lambda: (model, None)) == (model, None)
