"""A model that one rank opens is the same on all of them, and is whole on the host of the first alone."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

import pytest
import toy_world

from kerneldojo.training import learner
from kerneldojo.training.learner import open_learner
from kerneldojo.training.models import LoRAConfig, ModelConfig, NewModelConfig, new_model, with_lora
from kerneldojo.training.optimizing import OptimizerConfig
from kerneldojo.training.parallel import Ranks, whole_model
from kerneldojo.training.skeleton import open_once, skeleton_of

SCRIPT = """
import json, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import torch; torch.set_num_threads(1)
from kerneldojo.training import learner as learners
from kerneldojo.training.models import ModelConfig
from kerneldojo.training.optimizing import OptimizerConfig
from kerneldojo.training.parallel import end_ranks, full_tensor, start_ranks
from kerneldojo.training.settings import ConfigError

ranks, opened, told = start_ranks("cpu"), [], dict()
plain = learners.open_model
learners.open_model = lambda *arguments: opened.append(1) or plain(*arguments)
for name, config in json.loads({configs!r}).items():
    opened.clear()
    torch.manual_seed(0)  # new adapters begin at random
    learner = learners.open_learner(ModelConfig.model_validate(config), OptimizerConfig(), ranks)
    assert len(opened) == ranks.is_first
    assert learner.model.lm_head.weight is learner.model.model.embed_tokens.weight
    weights = {{n: full_tensor(p).tolist() for n, p in learner.model.named_parameters()}}
    trained = [n for n, p in learner.model.named_parameters() if p.requires_grad]
    buffers = {{n: b.tolist() for n, b in learner.model.named_buffers()}}
    told[name] = [weights, trained, buffers]
    learner.gather_weights()(Path({folder!r}) / f"{{name}}-{{ranks.count}}-{{ranks.rank}}") if ranks.is_first else None
    if not ranks.is_first:
        learner.gather_weights()
everybody = ranks.gather(told)
assert all(one == everybody[0] for one in everybody)
try:
    learners.open_learner(ModelConfig(path={model!r}, lora={{"targets": "nothing"}}), OptimizerConfig(), ranks)
except ConfigError as error:
    told["mistake"] = ranks.gather(str(error))
if ranks.is_first:
    (Path({folder!r}) / f"{{ranks.count}}.json").write_text(json.dumps(told))
end_ranks(ranks)
"""


def opened_by(num_ranks: int, folder: Path, model: Path, configs: dict[str, object]) -> dict:
    places = {"tests": str(Path(__file__).parent), "folder": str(folder), "model": str(model)}
    script = SCRIPT.format(**places, configs=json.dumps(configs))
    if num_ranks == 1:  # Here, where everything is imported already.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(learner, "open_model", learner.open_model)  # The script counts its calls.
            exec(script, {})
    else:
        toy_world.run_ranks([sys.executable, "-c", script], num_ranks)
    return json.loads((folder / f"{num_ranks}.json").read_text())


def test_ranks_that_were_sent_a_model_have_the_one_on_disk(tmp_path: Path, imitator: Path, ranks: Ranks) -> None:
    adapters = open_learner(ModelConfig(path=str(imitator), lora=LoRAConfig(rank=2)), OptimizerConfig(), ranks)
    adapters.gather_weights()(tmp_path / "adapter")
    configs: dict[str, object] = {
        "whole": {"path": str(imitator)},
        "adapters": {"path": str(imitator), "lora": {"rank": 2}},
        "adapter": {"path": str(tmp_path / "adapter")},
        "tokens": {"path": str(imitator), "new_tokens": ["<new>", "</new>"]},
    }
    alone, both = (opened_by(count, tmp_path, imitator, configs) for count in (1, 2))
    for name in configs:
        assert both[name] == alone[name], name
        one, other = (tmp_path / f"{name}-{count}-0" for count in (1, 2))
        assert sorted(path.name for path in one.iterdir()) == sorted(path.name for path in other.iterdir()), name
    assert "lora" in str(alone["adapters"][1]) and len(alone["whole"][1]) == len(alone["whole"][0])
    assert alone["whole"][2], "positions are numbers that no checkpoint has"
    assert len(both["mistake"]) == 2 and "model.lora.targets" in both["mistake"][0]
    assert both["mistake"][0] == both["mistake"][1] == alone["mistake"][0]


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("lora", [False, True])
def test_a_skeleton_is_all_but_the_numbers(family: str, lora: bool) -> None:
    shape = NewModelConfig.model_validate(toy_world.TINY.model_dump() | {"family": family})
    model, wrapper = new_model(shape, toy_world.tokenizer()), None
    if lora:
        wrapper = with_lora(model, LoRAConfig(rank=2))
        model = wrapper.get_base_model()
    before = {name: one.clone() for name, one in model.named_parameters()}
    bones, cover = pickle.loads(pickle.dumps(skeleton_of(model, wrapper)))
    told = [[(n, p.shape, p.dtype, p.requires_grad) for n, p in one.named_parameters()] for one in (model, bones)]
    assert told[0] == told[1]
    assert all(one.is_meta for one in [*bones.parameters(), *bones.buffers()])
    assert bones.lm_head.weight is bones.model.embed_tokens.weight
    assert (cover is None) is not lora and (cover is None or cover.get_base_model() is bones)
    assert len(pickle.dumps(skeleton_of(model, wrapper))) < 4 * sum(one.numel() for one in before.values())
    assert all(one.equal(before[name]) and not one.is_meta for name, one in model.named_parameters())


def test_only_the_first_keeps_the_gathered_whole(ranks: Ranks) -> None:
    model = new_model(toy_world.TINY, toy_world.tokenizer())
    assert set(whole_model(model, ranks)) == set(model.state_dict())
    assert whole_model(model, Ranks(1, 2, ranks.device)) == {}


def test_one_process_opens_its_own(ranks: Ranks) -> None:
    model = new_model(toy_world.TINY, toy_world.tokenizer())
    assert open_once(ranks, lambda: (model, None)) == (model, None)
