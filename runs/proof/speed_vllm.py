"""A vLLM server beside the trainer on one GPU, which samples in place of the trainer's own sampler."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from proof.speed_task import Task, model_of, tokenizer_of

START_SECONDS = 300.0


@contextmanager
def server(task: Task, folder: Path, share: float, options: Sequence[str] = ()) -> Generator[str]:
    """Address of a server of the task's model, which has `share` of the GPU's memory; it ends with the context.

    Raises:
        RuntimeError: it does not start; its last lines are in the message.
    """
    model, log = folder / "start", folder / "vllm.log"
    model_of(task, torch.bfloat16).save_pretrained(model)
    tokenizer = tokenizer_of(task)
    tokenizer.eos_token = None  # nothing ends an answer before its length
    tokenizer.save_pretrained(model)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--port", str(port)]
    command += ["--host", "127.0.0.1", "--dtype", "bfloat16", "--gpu-memory-utilization", str(share), *options]
    command += ["--max-model-len", str(task.prompt_tokens + task.answer_tokens), "--max-num-seqs", str(task.num_rows)]
    told = {"VLLM_SERVER_DEV_MODE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with log.open("w") as output:
        process = subprocess.Popen(command, env={**os.environ, **told}, stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait(process, f"http://127.0.0.1:{port}/health", log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def _wait(process: subprocess.Popen[bytes], health: str, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < until:
        try:
            with urllib.request.urlopen(health, timeout=2) as reply:
                if reply.status == 200:
                    return
        except OSError:
            time.sleep(0.5)
    raise RuntimeError(f"vLLM did not start: {log.read_text()[-3000:]}")
