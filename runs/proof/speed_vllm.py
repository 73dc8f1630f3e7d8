"""Our trainer's step with a vLLM server beside it on the same GPU, which samples in place of its own sampler."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from kerneldojo.policies.rows import ServedConfig
from kerneldojo.training.fitting import check_sampler
from proof.speed_ours import SIDES as OURS
from proof.speed_ours import learner_of, steps_of
from proof.speed_task import Task, endless_tokenizer_of, model_of
from proof.vllm_server import vllm_server

SIDES = {f"{side}-vllm": settings["model"] for side, settings in OURS.items()}
"""Rows in which a server samples, and what differs from the defaults in the model that learns."""
SHARE = 0.3
"""Of the GPU's memory that the server has, for weights and what is cached of prompts and answers."""


def measure(task: Task, device: str, side: str) -> dict[str, Any]:
    """As `speed_ours.measure`; handing over weights is part of generating. `side`: one of `SIDES`."""
    options = ["--dtype", "bfloat16", "--gpu-memory-utilization", str(SHARE), "--max-num-seqs", str(task.num_rows)]
    options += ["--max-model-len", str(task.prompt_tokens + task.answer_tokens)]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as told:
        folder = Path(told)
        model_of(task, torch.bfloat16).save_pretrained(folder / "start")
        endless_tokenizer_of(task).save_pretrained(folder / "start")
        with vllm_server(folder / "start", folder / "vllm.log", *options) as url:
            served = ServedConfig(url=url, weights=folder / "weights", concurrency=task.num_rows)
            learner = learner_of(task, device, model=SIDES[side], sampler=served)
            check_sampler(learner)  # refuses a server that does not follow
            return {**steps_of(task, learner, side), "settings": {"model": SIDES[side], "share": SHARE}}
