"""Problems like KernelBench's networks, each with a kernel that copies the answer out: weights, buffers, views."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from kerneldojo import Candidate, Problem
from kerneldojo.judging import Judge, division, gpu
from kerneldojo.judging.alone import Alone
from kerneldojo.schema import Evaluation, Status

pytestmark = pytest.mark.gpu

TOTAL_BYTES = 24 << 30
ALONE = Alone.of(TOTAL_BYTES)
HEAD = "import torch\nfrom torch import nn\n\nclass Model(nn.Module):\n"
NORMS = Problem(
    name="norms",
    source=HEAD
    + """
    def __init__(self):
        super().__init__()
        pairs = [nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)) for _ in range(40)]
        self.layers = nn.Sequential(*pairs)

    def forward(self, x):
        return self.layers(x)

def get_inputs():
    return [torch.randn(16, 8, 32, 32)]

def get_init_inputs():
    return []
""",
)
VIEW = Problem(
    name="view",
    source=HEAD
    + """
    def forward(self, x):
        return torch.stack([torch.zeros_like(x), x.cumsum(dim=-1)], dim=1)[:, -1]

def get_inputs():
    return [torch.randn(512, 64, 128)]

def get_init_inputs():
    return []
""",
)
HEAVY = Problem(
    name="heavy",
    source=HEAD
    + """
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8192, 40960)

    def forward(self, x):
        return torch.relu(self.layer(x))

def get_inputs():
    return [torch.randn(64, 8192)]

def get_init_inputs():
    return []
""",
)
"""Weights of 1.25 GiB, where each process of a verdict has 3.5 GiB: in float64 there would be no room for them."""
COPY = """
import triton
import triton.language as tl

@triton.jit
def copy_out(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, at < n), at < n)

class ModelNew(Model):
    def forward(self, x):
        made = super().forward(x).contiguous()
        y = torch.empty_like(made)
        copy_out[(triton.cdiv(made.numel(), 1024),)](made, y, made.numel(), BLOCK=1024)
        return y
"""
FROZEN = COPY.replace(
    "made = super().forward(x)", "self.layers[39][1].track_running_stats = False\n        made = super().forward(x)"
)
"""The last of 40 norms keeps its running statistics."""


@pytest.fixture(scope="module")
def judge() -> Generator[Judge]:
    with pytest.MonkeyPatch.context() as patch, Judge(num_verdicts=2) as judge:
        patch.setattr(gpu, "divide", lambda num, _, num_ahead: division.divide(num, TOTAL_BYTES, num_ahead))
        patch.setattr(gpu, "larger", lambda *_: ())
        patch.setattr(Alone, "of", classmethod(lambda _, __: ALONE))
        yield judge


def _verdict(judge: Judge, problem: Problem, source: str) -> Evaluation:
    candidate = Candidate(source=f"{problem.source}\n{source}")
    return judge.judge(problem, candidate, device="cuda:0", allow_degenerate=True)


@pytest.mark.parametrize("problem", [NORMS, VIEW, HEAVY], ids=lambda problem: problem.name)
def test_an_honest_candidate_passes(judge: Judge, problem: Problem) -> None:
    found = _verdict(judge, problem, COPY)
    assert found.status is Status.PASSED, found.message


def test_heavy_weights_are_judged_alone_against_a_poorer_oracle(judge: Judge) -> None:
    found = _verdict(judge, HEAVY, COPY)
    assert found.protocol.oracle == "float32"
    assert judge._gpus[0].large[HEAVY.hash] == 1


@pytest.mark.parametrize(
    ("problem", "source"),
    [
        (NORMS, FROZEN),
        (VIEW, COPY.replace("return y", "return y.roll(1, 0)")),
        (HEAVY, COPY.replace("return y", "return y.mul_(1 + 1e-2)")),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_one_that_is_wrong_does_not(judge: Judge, problem: Problem, source: str) -> None:
    found = _verdict(judge, problem, source)
    assert found.status is Status.INCORRECT, found.message
