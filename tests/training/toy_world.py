"""A world small enough to learn in seconds: one line of an answer matters, and the verdict follows from it.

The trainer is the real one, with real models, episodes, checkpoints and processes; only judging, which takes seconds a
kernel and has tests of its own, is replaced by a function of the text. `test_training_learn.py` has a run with the
real judge.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from kerneldojo.algorithms import LearningConfig
from kerneldojo.episodes import PlayConfig, first_episode, job_for, with_turn
from kerneldojo.schema import Answer, Episode, Evaluation, Exploit, Job, Problem, Status, Timing
from kerneldojo.training.config import EvaluationConfig, JudgeConfig, PackingConfig, RLConfig, SFTConfig
from kerneldojo.training.journal import LogConfig
from kerneldojo.training.model_config import ModelConfig, NewModelConfig
from kerneldojo.training.optimizing import OptimizerConfig
from kerneldojo.training.tokens import train_tokenizer

SOURCE = """import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x + {number}

def get_inputs():
    return [torch.randn(4)]

def get_init_inputs():
    return []
"""
TINY = NewModelConfig(vocabulary=512, hidden=32, intermediate=64, layers=2, heads=2, context=512)
PLAY = PlayConfig(device="model:h100", style="compact", num_turns=2, max_answer_tokens=40, max_prompt_tokens=400)


def problems(count: int = 3) -> list[Problem]:
    return [Problem(name=f"add_{number}", source=SOURCE.format(number=number)) for number in range(count)]


def write_problems(folder: Path) -> None:
    """The problems as files in KernelBench's layout."""
    (folder / "level1").mkdir(parents=True, exist_ok=True)
    for number, problem in enumerate(problems(), start=1):
        (folder / "level1" / f"{number}_{problem.name}.py").write_text(problem.source)


def answer_text(choice: int) -> str:
    return f"<plan>\nuse way {choice}\n</plan>\n```python\nclass ModelNew:\n    way = {choice}\n```\n"


def verdict(job: Job) -> Evaluation:
    """Way 3 is twice as fast, way 1 as fast, way 2 cheats, all else is wrong."""
    found = re.search(r"way = (\d)", job.candidate.source)
    way = int(found.group(1)) if found else 0
    told = {"device": "model:h100", "problem_hash": job.problem.hash, "candidate_hash": job.candidate.hash}
    timing = Timing(source="modeled", median_ms=1.0, confidence_interval_ms=(1.0, 1.0))
    if way in (1, 3):
        speed = 2.0 if way == 3 else 1.0
        told |= {"correct": True, "speedup": speed, "coverage": 0.9 if way == 3 else 0.35}
        return Evaluation(status=Status.PASSED, timing=timing, reference_timing=timing, **told)
    if way == 2:
        return Evaluation(status=Status.EXPLOIT, exploits=(Exploit(name="decoy", evidence="seen"),), **told)
    return Evaluation(status=Status.INCORRECT, message="wrong values", **told)


class TextJudge:
    """An executor whose verdicts are `verdict`; it can fail for a while, and take the whole process with it."""

    num_slots = 4

    def __init__(self, *, fail_orders: range = range(0), kill_at: int | None = None) -> None:
        self.fail_orders, self.kill_at = fail_orders, kill_at
        self.jobs: list[Job] = []

    def submit(self, job: Job) -> Future[Evaluation]:
        number = len(self.jobs)
        self.jobs.append(job)
        if number == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if number in self.fail_orders:
            raise ConnectionError("nobody there")
        future: Future[Evaluation] = Future()
        future.set_result(verdict(job))
        return future

    def devices(self) -> tuple[()]:
        return ()

    def close(self, *, drain: bool = True, patience: float | None = None) -> None:
        pass


def played(choices: tuple[int, ...] = (1, 3, 2, 0), repeats: int = 8) -> list[Episode]:
    """Recorded episodes of two turns in which each way is first tried as often as it stands in `choices`."""
    episodes: list[Episode] = []
    for problem in problems():
        for sample in range(repeats * len(choices)):
            episode = first_episode(problem, PLAY, sample=sample)
            for turn in range(2):
                answer = Answer(text=answer_text(choices[(sample + turn) % len(choices)]))
                job = job_for(episode, answer)
                episode = with_turn(episode, answer, None if job is None else verdict(job))
            episodes.append(episode)
    return episodes


def tokenizer():
    from kerneldojo.training.sft import corpus

    return train_tokenizer(corpus(played(repeats=1)), 512)


def sft_config(output: Path, data: Path, **changes: object) -> SFTConfig:
    told: dict[str, object] = {
        "output": output,
        "data": (data,),
        "keep": {"statuses": None},
        "model": ModelConfig(new=TINY),
        "optimizer": OptimizerConfig(matrices="muon", learning_rate=0.01),
        "packing": PackingConfig(row_tokens=256, micro_batch_tokens=1024),
        "batch_tokens": 2048,
        "epochs": 12,
        "num_validation": 8,
        "device": "cpu",
        "log": LogConfig(tensorboard=False),
    }
    return SFTConfig.model_validate(told | changes)


def rl_config(output: Path, model: Path, **changes: object) -> RLConfig:
    told: dict[str, object] = {
        "output": output,
        "problems": (f"kernelbench:{output.parent / 'problems'}",),
        "model": {"path": str(model)},
        "play": PLAY,
        "judge": JudgeConfig(patience_s=0.0),
        "learning": LearningConfig(aggregation={"mode": "token-mean"}),
        "optimizer": OptimizerConfig(learning_rate=0.003, matrices="muon"),
        "packing": PackingConfig(row_tokens=256, micro_batch_tokens=1024),
        "steps": 4,
        "prompts_per_step": 2,
        "samples_per_prompt": 8,
        "evaluation": EvaluationConfig(problems=(f"kernelbench:{output.parent / 'problems'}",), every=2),
        "checkpoint_every": 1,
        "device": "cpu",
        "log": LogConfig(tensorboard=False),
    }
    return RLConfig.model_validate(told | changes)


def run_ranks(command: Sequence[str], num_ranks: int) -> None:
    """Run `command` as so many ranks, like torchrun does, and see them all end well."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    processes: list[subprocess.Popen[bytes]] = []
    for rank in range(num_ranks):
        world = {"WORLD_SIZE": str(num_ranks), "RANK": str(rank), "LOCAL_RANK": str(rank)}
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
        processes.append(subprocess.Popen(command, env={**os.environ, **world, **address}))
    try:
        assert [process.wait(timeout=200) for process in processes] == [0] * num_ranks
    finally:
        for process in processes:
            process.kill()
