"""Two processes that share a model learn what one alone learns, by gloo on the CPU, and by NCCL on two GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import toy_world

SCRIPT = """
import json, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import torch; torch.set_num_threads(1)
import torch.distributed as dist
import toy_world
from toy_world import TextJudge
from kerneldojo.training.checkpoints import Checkpoints
from kerneldojo.training.config import RLConfig
from kerneldojo.training.judges import NoJudge
from kerneldojo.training.learner import open_learner
from kerneldojo.training.model_config import ModelConfig
from kerneldojo.training.optimizing import OptimizerConfig
from kerneldojo.training.packing import make_batches, token_offsets
from kerneldojo.training.parallel import end_ranks, full_tensor, optimizer_state, start_ranks
from kerneldojo.training.rl import train_rl
from test_training_packing import random_samples

ranks = start_ranks({device!r})
out = Path({output!r})
talk = ranks.count == 1
if not talk:  # objects must not wait on a GPU: they have a group of their own
    heard = ranks.gather(ranks.from_first("first") + str(ranks.rank))
    alone = ranks.talk is not dist.group.WORLD and dist.get_backend(ranks.talk) == "gloo"
    talk = alone and heard == ["first0", "first1"]
config = ModelConfig(path={model!r}, precision="float32")
learner = open_learner(config, OptimizerConfig(matrices="muon", learning_rate=0.01), ranks)
samples = random_samples(13)
batches = make_batches(samples, row_tokens=48, batch_tokens=48)
num_tokens = token_offsets(samples)[-1]
weights = torch.sin(torch.arange(num_tokens))
scores = learner.score(batches, num_tokens, 0.9)
loss = learner.add_gradients(batches, lambda b, lp: -(lp * weights.to(lp.device)[b.tokens]).sum() / num_tokens, 0.9)
grads = {{n: full_tensor(p.grad).tolist() for n, p in learner.model.named_parameters()}}
norm, rate = learner.step(0, 0.0, loss)
after = {{n: full_tensor(p).tolist() for n, p in learner.model.named_parameters()}}
state = learner.state()
learner.add_gradients(batches, lambda b, lp: -(lp * weights.to(lp.device)[b.tokens]).sum() / num_tokens, 0.9)
second = learner.step(1, 0.0, loss)[0]
config = RLConfig.model_validate_json({config!r})
outcome = train_rl(config, TextJudge() if ranks.is_first else NoJudge(), ranks, show=False)
longer = config.model_copy(update={{"steps": 3}})
judge = TextJudge() if ranks.is_first else NoJudge()
resumed = train_rl(longer, judge, ranks, resume=True, show=False)
ahead = config.model_copy(update={{"output": config.output.parent / "ahead", "staleness": 1, "steps": 3}})
train_rl(ahead, TextJudge() if ranks.is_first else NoJudge(), ranks, show=False)
if ranks.is_first:
    told = dict(batches=len(batches), loss=loss, norm=norm, second=second, grads=grads, after=after)
    told |= dict(talk=talk, log_probs=scores.log_probs.tolist(), steps=resumed.steps, reason=outcome.reason)
    out.write_text(json.dumps(told))
end_ranks(ranks)
assert not dist.is_initialized()
"""

FORKS = """
import gc, sys
gc.set_threshold(50_000)  # As in the command line.
sys.path.insert(0, {tests!r})
import torch; torch.set_num_threads(1)
import opening_ranks
opening_ranks.fork_ranks({count}, lambda: exec(sys.argv[1], {{}}))
"""


def run(num_ranks: int, folder: Path, path: Path, device: str) -> dict:
    folder.mkdir()
    toy_world.write_problems(folder / "problems")
    settings = toy_world.rl_config(folder / "rl", path, device=device, steps=2, samples_per_prompt=4)
    precise = settings.model.model_copy(update={"precision": "float32"})
    config = settings.model_copy(update={"model": precise}).model_dump_json()
    given = {"tests": str(Path(__file__).parent), "output": str(folder / "out.json"), "model": str(path)}
    script = SCRIPT.format(**given, config=config, device=device)
    if num_ranks == 1:  # Here, where everything is imported already.
        exec(script, {})
    else:  # Forks of one process, which imports everything for both.
        command = [sys.executable, "-c", FORKS.format(tests=str(Path(__file__).parent), count=num_ranks), script]
        subprocess.run(command, check=True, timeout=200, env={**os.environ, "OMP_NUM_THREADS": "1"})
    found = json.loads((folder / "out.json").read_text())
    for name, place in (("journal", "rl"), ("ahead", "ahead")):
        lines = (folder / place / "metrics.jsonl").read_text().splitlines()
        found[name] = [json.loads(line) for line in lines]
    return found


def flat(value: object) -> list[float]:
    if isinstance(value, dict):
        return [number for key in sorted(value) for number in flat(value[key])]
    if isinstance(value, list):
        return [number for one in value for number in flat(one)]
    return [float(value)]  # pyright: ignore[reportArgumentType]


def test_two_are_as_one(tmp_path: Path, imitator: Path) -> None:
    are_as_one(tmp_path, imitator, "cpu")


@pytest.mark.gpu
@pytest.mark.own_process
def test_two_gpus_are_as_one(tmp_path: Path, imitator: Path) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    are_as_one(tmp_path, imitator, "cuda")


def are_as_one(folder: Path, model: Path, device: str) -> None:
    alone, both = (run(count, folder / str(count), model, device) for count in (1, 2))
    assert alone["talk"] and both["talk"]
    assert alone["batches"] % 2 == 1, alone["batches"]  # an odd number: one rank repeats a batch, which must not count
    for name in ("loss", "norm", "second", "log_probs", "grads"):
        assert flat(both[name]) == pytest.approx(flat(alone[name]), rel=1e-3, abs=2e-5), name
    # Muon orthogonalises in bfloat16, so that rounding of shards shows in the weights.
    assert flat(both["after"]) == pytest.approx(flat(alone["after"]), abs=4e-3)
    assert both["reason"] == "finished" and both["steps"] == 3
    assert [one["step"] for one in both["journal"]] == [one["step"] for one in alone["journal"]]
    for first, second in list(zip(alone["journal"], both["journal"], strict=True))[:2]:  # later ones sample other words
        for name in ("reward", "loss", "grad_norm", "entropy"):
            assert (second.get(name) or 0.0) == pytest.approx(first.get(name) or 0.0, rel=2e-3, abs=1e-4), name
    # Two steps at once: the second one was written, and is corrected for, alike (with weights of before any update).
    first, second = ([one for one in run["ahead"] if "reward" in one] for run in (alone, both))
    assert [one["step"] for one in first] == [one["step"] for one in second] == [1, 2, 3]
    for name in ("reward", "loss", "entropy"):
        assert second[1][name] == pytest.approx(first[1][name], rel=0.05, abs=5e-3), name
    assert second[1]["staleness"] == pytest.approx(first[1]["staleness"], rel=0.2, abs=2e-3)
    assert first[1]["staleness"]["samples"] == 1.0 and first[1]["staleness"]["kl"] > 0
