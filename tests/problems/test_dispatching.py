"""Our modes see every operation, import no compiler of torch's, and are compiled by none that others import."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
import torch
from kerneldojo.problems.dispatching import Dispatching

class Watching(Dispatching):
    def __init__(self):
        super().__init__()
        self.seen = []
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func.name())
        return func(*args, **(kwargs or {})) + torch.zeros(())

def f(x):
    return torch.relu(x)

x = torch.tensor([-1.0, 2.0])
with Watching() as mode:
    assert f(x).tolist() == [0, 2]
assert mode.seen == ["aten::relu"], mode.seen
assert "torch._dynamo" not in sys.modules and "sympy" not in sys.modules
graphs = []

def backend(graph, inputs):
    graphs.append(graph)
    return graph.forward

import torch._dynamo

with Watching() as mode:
    assert torch._dynamo.optimize(backend)(f)(x).tolist() == [0, 2]
assert mode.seen[-1] == "aten::relu" and not graphs, (mode.seen, graphs)
torch._dynamo.optimize(backend)(lambda x: torch.relu(x))(x)
assert len(graphs) == 1, "it does compile elsewhere"
"""


def test_a_mode_needs_no_compiler_and_is_left_alone_by_one() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
