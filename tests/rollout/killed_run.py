"""A process that plays into a folder until it is done or killed: `python killed_run.py FOLDER`."""

from __future__ import annotations

import asyncio
import signal
import sys

from small_policies import PROBLEMS, Fixed, Parity

from kerneldojo.episodes import PlayConfig
from kerneldojo.rollout import RolloutConfig, RunFolder, play

CONFIG = PlayConfig(num_turns=3, style="compact", device="model:h100")
NUM_SAMPLES = 8
SEED = 11


def run(folder: str, latency: float):
    config = RolloutConfig(max_concurrent=10)
    options = {"num_samples": NUM_SAMPLES, "seed": SEED, "rollout": config, "show_progress": False}
    return asyncio.run(play(PROBLEMS, Fixed(latency), Parity(), CONFIG, folder=RunFolder(folder), **options))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Ignored where tests are started in the background.
    print("begun", flush=True)
    run(sys.argv[1], latency=0.03)
