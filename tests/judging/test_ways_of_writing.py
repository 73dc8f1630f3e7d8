"""Problems and kernels in the ways in which people and models write them: all of these are honest, and pass."""

from __future__ import annotations

import pytest
from copying import COPY

from kerneldojo import Candidate, Problem
from kerneldojo.judging import Judge
from kerneldojo.schema import Status

REFERENCE = """
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import nn

@triton.jit
def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, at < n) * 2 + 1, at < n)

class Model(nn.Module):
    def __init__(self, width=96, **more):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return {given}
"""
X, IMAGES, WORDS = "torch.randn(64, 96)", "torch.randn(2, 16, 96)", "torch.randint(0, 100, (64,))"


def problem(init: str = "pass", forward: str = "return self.m(x)", inputs: str = X, given: str = "[]") -> Problem:
    body = forward.replace("\n", "\n        ")
    return Problem(name="way", source=REFERENCE.format(init=init, forward=body, inputs=inputs, given=given))


PROBLEMS = {
    "on the device already": problem(forward="return x * 2", inputs="torch.randn(64, 96, device='cuda')"),
    "moved there": problem("self.m = nn.Linear(96, 32).cuda()", inputs=f"{X}.cuda()"),
    "named arguments": problem(
        "self.m = nn.Linear(width, **more)", given="[[96], {'out_features': 32, 'bias': False}]"
    ),
    "half precision": problem("self.m = nn.Linear(96, 32).half()", "return self.m(x.half())"),
    "recurrent": problem("self.m = nn.LSTM(96, 32)", "y, (h, c) = self.m(x)\nreturn y, h, c", IMAGES),
    "attention": problem("self.m = nn.MultiheadAttention(96, 4, batch_first=True)", "return self.m(x, x, x)", IMAGES),
    "spectral norm": problem("self.m = nn.utils.parametrizations.spectral_norm(nn.Linear(96, 32))"),
    "weight norm": problem("self.m = nn.utils.parametrizations.weight_norm(nn.Linear(96, 32))"),
    "tied weights": problem(
        "self.a, self.b = nn.Linear(96, 96), nn.Linear(96, 96); self.b.weight = self.a.weight",
        "return self.b(torch.tanh(self.a(x)))",
    ),
    "containers": problem(
        "self.m = nn.ModuleList([nn.Linear(96, 96), nn.Tanh()]); self.p = nn.ParameterDict({'w': torch.randn(96)})",
        "for one in self.m:\n    x = torch.relu(one(x))\nreturn x * self.p['w']",
    ),
    "an embedding": problem("self.m = nn.Embedding(100, 96)", inputs=WORDS),
    "a hook": problem("self.m = nn.Linear(96, 32); self.m.register_forward_hook(lambda m, i, o: o * 2)"),
    "scripted": problem("self.m = torch.jit.script(nn.Sequential(nn.Linear(96, 32), nn.ReLU()))"),
    "mapped": problem(forward="return torch.vmap(lambda row: row * row.sum())(x)"),
    "a gradient": problem(
        forward="x = x.detach().requires_grad_()\nwith torch.enable_grad():\n    y = F.silu(x).sum()\n"
        "return torch.autograd.grad(y, x)[0]"
    ),
    "kernels in the reference": problem(
        forward="y = torch.empty_like(x)\ndouble[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)\nreturn y"
    ),
    "prints and warns": problem(forward="print('here')\nimport warnings\nwarnings.warn('careful')\nreturn x * 2"),
}
KERNEL = """import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def affine_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, at < n) * 2 + 1, at < n)

def affine(x):
    y = torch.empty_like(x)
    affine_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
    return y

class ModelNew(nn.Module):
    def forward(self, x):
        return affine(x)
"""
MAIN = "\nif __name__ == '__main__':\n    raise SystemExit(ModelNew()(torch.ones(4).cuda()))\n"
KERNELS = {
    "a main block": KERNEL + MAIN,
    "the reference beside it": KERNEL + problem(forward="return x * 2 + 1").source,
    "a tensor of the module's": KERNEL + "\nTABLE = torch.ones(4, device='cuda')\n",
    "launched at import": KERNEL + "\naffine(torch.ones(4, device='cuda'))\n",
    "another name": KERNEL.replace("class ModelNew", "class Fast") + "\nModelNew = Fast\n",
    "any arguments": KERNEL.replace(
        "    def forward", "    def __init__(self, *args, **kwargs):\n        super().__init__()\n\n    def forward"
    ),
    "a device guard": KERNEL.replace(
        "    affine_kernel[", "    with torch.cuda.device(x.device):\n        affine_kernel["
    ),
    "a way out that is not taken": KERNEL.replace(
        "        return affine(x)", "        return affine(x) if x.is_cuda else x * 2 + 1"
    ),
    "a package that may lack": f"try:\n    import flash_attn\nexcept ImportError:\n    flash_attn = None\n{KERNEL}",
    "a log": KERNEL.replace("        return affine", "        logging.info('called')\n        return affine").replace(
        "import torch\n", "import logging\nimport torch\n", 1
    ),
    "flags": KERNEL + "\ntorch.backends.cuda.matmul.allow_tf32 = True\ntorch.set_float32_matmul_precision('high')\n",
    "other ends of lines": KERNEL.replace("\n", "\r\n"),
    "tabs": KERNEL.replace("    ", "\t"),
    "a mark before it": "\ufeff" + KERNEL,
    "other scripts": KERNEL.replace("    return y\n", "    return y  # größer → schneller\n"),
}
DEVICES = ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PROBLEMS)
def test_problems(judge: Judge, device: str, name: str) -> None:
    one = PROBLEMS[name]
    found = judge.judge(one, Candidate(source=one.source + COPY), device=device, allow_degenerate=True)
    assert found.status is Status.PASSED, found.message


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", KERNELS)
def test_kernels(judge: Judge, device: str, name: str) -> None:
    found = judge.judge(problem(forward="return x * 2 + 1"), Candidate(source=KERNELS[name]), device=device)
    assert found.status is Status.PASSED, found.message
