"""A constructor may fold what is constant into its weights: whoever is right with them keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_steps import IN_PLACE, TWIN, HostBench, Windows, passed, refused
from gpu_steps import judge as judge_on

from kerneldojo import Candidate, Problem
from kerneldojo.judging import Judge
from kerneldojo.judging.protocol import Protocol
from kerneldojo.schema import Evaluation, Status

PROBLEM = Problem(
    name="folded",
    source="""
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.scale = 0.25

    def forward(self, x):
        return torch.tanh(self.linear(x) * self.scale)

def get_inputs():
    return [torch.randn(64, 96)]

def get_init_inputs():
    return [96]
""",
)
SOURCE = """
import torch, triton, triton.language as tl
from torch import nn

@triton.jit
def squash(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n)
    tl.store(y_ptr + at, 2 * tl.sigmoid(2 * x) - 1, at < n)

class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)
        with torch.no_grad():
            self.linear.weight.mul_(SCALE)
            self.linear.bias.mul_(SCALE)

    def forward(self, x):
        x = self.linear(x)
        y = torch.empty_like(x)
        squash[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""
DECOY = SOURCE.replace("return y\n", "return torch.tanh(x)\n")
OWN_ORDER = SOURCE.replace(
    "        with torch.no_grad():",
    "        nn.init.normal_(self.linear.weight)\n        with torch.no_grad():",
)
NOTE = "its weights are those that its constructor made, for it is wrong with the reference's"
DEVICES = ["cpu", "model:h200", pytest.param("cuda:0", marks=pytest.mark.gpu)]


def verdict(judge: Judge, device: str, source: str, scale: float = 0.25) -> Evaluation:
    return judge.judge(PROBLEM, Candidate(source=source.replace("SCALE", str(scale))), device=device)


@pytest.mark.parametrize("device", DEVICES)
def test_whoever_is_right_with_its_own_weights_keeps_them(judge: Judge, device: str) -> None:
    found = verdict(judge, device, SOURCE)
    assert found.status is Status.PASSED, found.message
    assert NOTE in found.notes


@pytest.mark.parametrize("device", DEVICES)
def test_whoever_needs_none_of_that_is_dealt_the_references(judge: Judge, device: str) -> None:
    scaled = SOURCE.replace("x = self.linear(x)", "x = self.linear(x) * 0.25")
    for source in (scaled, OWN_ORDER.replace("x = self.linear(x)", "x = self.linear(x) * 0.25")):
        found = verdict(judge, device, source, 1.0)
        assert found.status is Status.PASSED, found.message
        assert NOTE not in found.notes


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("source", [SOURCE, OWN_ORDER])
def test_whoever_is_wrong_with_both_is_wrong(judge: Judge, device: str, source: str) -> None:
    found = verdict(judge, device, source, 0.5)
    assert found.status is Status.INCORRECT
    assert "elements are wrong" in found.message
    assert NOTE not in found.notes


@pytest.mark.parametrize("device", DEVICES)
def test_kernels_without_a_part_in_the_answer_are_found_all_the_same(judge: Judge, device: str) -> None:
    """Who calls it without its kernels must not have other weights: then it would be wrong for that."""
    found = verdict(judge, device, DECOY)
    assert [one.name for one in found.exploits] == ["no_causal_kernel"], found.message


@pytest.mark.parametrize("settings", [TWIN, IN_PLACE])
def test_a_silent_twin_keeps_its_own_as_well(
    bench: HostBench, windows: Windows, tmp_path: Path, settings: Protocol
) -> None:
    source, decoy = (text.replace("SCALE", "0.25") for text in (SOURCE, DECOY))
    assert NOTE in passed(judge_on(bench, source, tmp_path, settings, PROBLEM)).notes
    verdict = refused(judge_on(bench, decoy, tmp_path, settings, PROBLEM))
    assert [one.name for one in verdict.exploits] == ["no_causal_kernel"]
