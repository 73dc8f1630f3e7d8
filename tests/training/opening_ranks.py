"""Opens the same models as one process, as two ranks and as four, and writes down what each found.

    python opening_ranks.py FOLDER            # reads FOLDER/cases.json, writes FOLDER/{1,2,4}.json
    python opening_ranks.py FOLDER cuda 1 2   # on so many GPUs

Ranks are forks of this process: nearly all of the time would go into their imports.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import peft
import torch
import torch.distributed.checkpoint.state_dict
import torch.distributed.fsdp
import toy_world
import transformers.models.llama.modeling_llama
import transformers.models.qwen3.modeling_qwen3  # noqa: F401 - all of these once, for all forks

from kerneldojo.policies.sampler import Sampled, SamplerConfig
from kerneldojo.training import learner as learners
from kerneldojo.training.model_config import ModelConfig, NewModelConfig
from kerneldojo.training.optimizing import OptimizerConfig
from kerneldojo.training.packing import Sample, make_batches, token_offsets
from kerneldojo.training.parallel import Ranks, end_ranks, full_tensor, optimizer_state, start_ranks
from kerneldojo.training.settings import ConfigError

PROMPTS = [[5, 6, 7], [8, 9], [5, 6, 7, 10], [20 + number for number in range(9)]]
LARGE = NewModelConfig(vocabulary=512, hidden=512, intermediate=2048, layers=8, heads=8)
"""34 million parameters: 134 MB, of which the largest weight is 4."""


def opened(case: dict, ranks: Ranks, folder: Path) -> dict[str, object]:
    """All that is to be the same on any number of ranks."""
    checkpoint = Path(case["checkpoint"]) if "checkpoint" in case else None
    sampler = SamplerConfig() if case.get("samples") else None
    config = ModelConfig.model_validate(case["model"])
    learner = learners.open_learner(
        config,
        OptimizerConfig(),
        ranks,
        seed=5,
        checkpoint=checkpoint,
        tokenizer=toy_world.tokenizer(),
        sampler=sampler,
    )
    model = learner.model
    told: dict[str, object] = {
        "weights": {name: bits(full_tensor(one)) for name, one in model.named_parameters()},
        "trained": [name for name, one in model.named_parameters() if one.requires_grad],
        "buffers": {name: bits(one) for name, one in model.named_buffers()},
        "is tied": model.get_output_embeddings().weight is model.get_input_embeddings().weight,
    }
    if sampler is not None:
        samples = learner.sampler.generate(PROMPTS, max_tokens=12, seeds=range(len(PROMPTS)))
        told["samples"] = [[sample.ids, sample.log_probs] for sample in samples]
        told["mismatch"] = mismatch(learner, samples)
    save = learner.gather_weights()
    if ranks.is_first:
        save(folder)
    assert ranks.gather(json.dumps(told)) == [json.dumps(told)] * ranks.count
    if checkpoint is not None:
        learner.restore(checkpoint)
        state = optimizer_state(learner.scorer, learner.optimizers.each).get("state", {})  # the first rank's alone
        told["optimizer"] = {
            name: {key: bits(torch.as_tensor(value)) for key, value in own.items()} for name, own in state.items()
        }
    return told


def mismatch(learner: learners.Learner, samples: Sequence[Sampled]) -> float:
    """How far sampler and trainer lie apart, in nats a token."""
    asked = [Sample(tuple(prompt), sample.ids) for prompt, sample in zip(PROMPTS, samples, strict=True)]
    batches = make_batches(asked, row_tokens=32, batch_tokens=32)
    scores = learner.score(batches, token_offsets(asked)[-1], 1.0).log_probs
    return float((scores - torch.tensor([one for sample in samples for one in sample.log_probs])).abs().mean())


def bits(tensor: torch.Tensor) -> str:
    """What two tensors have in common if they are the same bit for bit."""
    return f"{tensor.dtype} {list(tensor.shape)} {hashlib.sha256(tensor.detach().cpu().numpy().tobytes()).hexdigest()}"


def memory(ranks: Ranks) -> tuple[int, int, int]:
    """Bytes: how much was taken at most to open `LARGE`, of the host or of the GPU; all weights; this rank's share."""
    on_gpu = ranks.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5")  # what it had at most is what it has now
    most = torch.cuda.max_memory_allocated if on_gpu else _peak
    before = most()
    tokenizer = toy_world.tokenizer()
    learner = learners.open_learner(ModelConfig(new=LARGE), OptimizerConfig(), ranks, tokenizer=tokenizer)
    growth = most() - before
    weights = list(learner.model.parameters())
    return growth, 4 * sum(one.numel() for one in weights), 4 * sum(one.to_local().numel() for one in weights)


def _peak() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def play(folder: Path, device: str, *, is_last: bool) -> None:
    """What one rank does."""
    cases = json.loads((folder / "cases.json").read_text())
    ranks, calls = start_ranks(device), list[int]()
    open_model = learners.open_model
    learners.open_model = lambda *arguments: calls.append(1) or open_model(*arguments)
    told = {name: opened(case, ranks, folder / f"{name} {ranks.count}") for name, case in cases.items()}
    assert len(calls) == len(cases) * ranks.is_first
    try:
        wrong = ModelConfig.model_validate({**cases["adapters"]["model"], "lora": {"targets": "nothing"}})
        learners.open_learner(wrong, OptimizerConfig(), ranks)
    except ConfigError as error:
        told["mistake"] = {"told": ranks.gather(str(error))}
    if is_last:
        told["memory"] = {"told": ranks.gather(memory(ranks))}
    if ranks.is_first:
        (folder / f"{ranks.count}.json").write_text(json.dumps(told))
    end_ranks(ranks)


def fork_ranks(count: int, rank: Callable[[], None]) -> None:
    """Have so many forks do it, like torchrun's processes, and see them all end well."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
    children = list[int]()
    for number in range(count):
        child = os.fork()
        if not child:
            os.environ |= {"WORLD_SIZE": str(count), "RANK": str(number), "LOCAL_RANK": str(number)}
            try:
                rank()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)  # the others hear of it by its socket
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * count


if __name__ == "__main__":
    torch.set_num_threads(1)
    assert peft.__version__
    place, device, *counts = [*sys.argv[1:], *(["cpu", "1", "2", "4"] if len(sys.argv) == 2 else [])]
    for number in counts:
        fork_ranks(int(number), lambda: play(Path(place), device, is_last=number == counts[-1]))  # noqa: B023
