"""A vLLM server for as long as something is measured or tested with it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

START_SECONDS = 300.0


@contextmanager
def vllm_server(
    model: Path,
    log: Path,
    *options: str,
    python: str | Path = sys.executable,
    variables: Mapping[str, str] | None = None,
) -> Generator[str]:
    """Address of a server of the checkpoint `model` that takes weights; it ends with the context.

    Args:
        model: folder of the checkpoint.
        log: file for what it prints.
        options: its own, beside model and address.
        python: the one that has vLLM.
        variables: of its environment, beside those of this process.

    Raises:
        RuntimeError: it does not start; its last lines are in the message.
    """
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--host", "127.0.0.1"]
    command += ["--port", str(port), *options]
    told = {"VLLM_SERVER_DEV_MODE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", **(variables or {})}
    with log.open("w") as output:
        process = subprocess.Popen(command, env={**os.environ, **told}, stdout=output, stderr=subprocess.STDOUT)
    address, until = f"http://127.0.0.1:{port}", time.monotonic() + START_SECONDS
    try:
        while not _is_well(address):
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"vLLM did not start: {log.read_text()[-4000:]}")
            time.sleep(0.5)
        yield address
    finally:
        process.terminate()
        process.wait(60)


def _is_well(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=2) as reply:
            return reply.status == 200
    except OSError:
        return False
