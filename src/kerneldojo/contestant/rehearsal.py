"""One dress rehearsal in the fork server, so that no contestant pays for a first time.

torch and Triton import and build much lazily: the first dispatch mode, the first generator, the first interpreted
kernel each cost tens to hundreds of milliseconds. Run once before the fork, they cost the forks nothing. What runs
here is ours alone.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from kerneldojo.contestant.arena import HostArena
from kerneldojo.contestant.host_platform import HostPlatform, InterpretPlatform
from kerneldojo.contestant.platform import Platform
from kerneldojo.contestant.runner import Runner

SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.norm = nn.LayerNorm(size)
        self.running = nn.BatchNorm1d(size)

    def forward(self, x):
        return self.running(torch.softmax(self.norm(torch.relu(self.linear(x))), dim=-1)) @ x.t()

def get_inputs():
    return [torch.rand(4, 8)]

def get_init_inputs():
    return [8]
"""


def rehearse(*, interpreted: bool, calls: bool = True) -> None:
    """Load, construct and call a small module in every way that a runner offers.

    Args:
        interpreted: whether this fork server's contestants interpret kernels; else only what is common to all
            platforms is rehearsed, in host memory, for the parent of CUDA processes must not touch a device.
        calls: False where contestants only ever load their source: the rest is then left out.
    """
    arena = HostArena.create(1 << 22)
    platform: Platform = InterpretPlatform([arena.fd], "h100") if interpreted else HostPlatform([arena.fd])
    with tempfile.TemporaryDirectory(prefix="dojo-") as folder:
        os.environ["TORCH_EXTENSIONS_DIR"] = folder
        runner = Runner(platform, Path(folder))
        room = {"number": 0, "start": 1 << 21, "stop": 1 << 22}

        def act(op: str, **fields: object) -> dict[str, object]:
            answer = runner.answer({"op": op, **room, **fields})
            if "failure" in answer:
                raise RuntimeError(f"the rehearsal failed at {op}: {answer['failure']['text']}")
            return answer

        act("load", source=SOURCE, entry_point="Model")
        if not calls:
            return
        sizes = act("draw", what="get_init_inputs", seed=1)["values"]
        inputs = act("draw", what="get_inputs", seed=1, distribution="signed")["values"]
        act("construct", instance="a", entry_point="Model", seed=2, training=True, arguments=sizes)
        if interpreted:  # A backward pass counts CUDA devices, which a parent of CUDA processes must not.
            act("needed_bytes", instance="a", seed=3, arguments=inputs)
        variants = ["native", "float64", "tf32"]
        act("expect", instance="a", variants=variants, seed=3, footprint=True, arguments=inputs)
        act("call", instance="a", seed=3, arguments=inputs)
        act("state", instance="a", names=["running.running_mean"])
        act("release")
