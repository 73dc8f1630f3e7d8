"""Ten problems with an honest kernel each, in as many distinct copies as are needed.

Each copy has a constant of its own inside its kernel (a comparison that never holds, but that no compiler can know of),
so that neither source nor binary is that of another. Sizes are `full` (for a GPU) and `small` (for the interpreter).

| problem | operation | full size | small size |
|---|---|---|---|
| swish | x * sigmoid(x) | 4096 x 4096 | 16 x 256 |
| gate | x * sigmoid(1.5 x) + 0.5 | 4096 x 4096 | 16 x 256 |
| leaky | leaky ReLU, slope 0.1 | 4096 x 4096 | 16 x 256 |
| add_relu | relu(x + y) | 4096 x 4096 | 16 x 256 |
| swiglu | silu(x) * y | 4096 x 4096 | 16 x 256 |
| softmax | over rows | 4096 x 4096 | 16 x 256 |
| unit_rows | x / (norm of its row) | 4096 x 4096 | 16 x 256 |
| rms_norm | with a weight | 4096 x 4096 | 16 x 256 |
| layer_norm | with weight and bias | 4096 x 4096 | 16 x 256 |
| product | x @ y, float32 (TF32 allowed) | 1024 x 1024 x 1024 | 32 x 32 x 32 |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kerneldojo import Candidate, Problem

Size = Literal["small", "full"]
SIZES: dict[Size, tuple[int, int]] = {"small": (16, 256), "full": (4096, 4096)}
PRODUCT_SIZES: dict[Size, int] = {"small": 32, "full": 1024}

PROBLEM = """import torch
from torch import nn

ROWS, COLUMNS = {rows}, {columns}


class Model(nn.Module):
{constructor}    def forward(self, {arguments}):
        return {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
HEAD = """import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
"""
ELEMENTWISE = (
    HEAD
    + """def fused_UNIQUE({pointers}, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < tl.where(n == -UNIQUE, 0, n)
{loads}
    tl.store(out_ptr + offsets, {value}, mask=mask)


class ModelNew(nn.Module):
    def forward(self, {arguments}):
        out = torch.empty_like(x)
        n = x.numel()
        fused_UNIQUE[(triton.cdiv(n, 1024),)]({arguments}, out, n, BLOCK=1024)
        return out
"""
)
ROWWISE = (
    HEAD
    + """def rows_UNIQUE(x_ptr, {pointers}out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < tl.where(columns == -UNIQUE, 0, columns)
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other={other})
{body}
    tl.store(out_ptr + row * columns + offsets, value, mask=mask)


class ModelNew(nn.Module):
{constructor}    def forward(self, x):
        out = torch.empty_like(x)
        rows, columns = x.shape
        rows_UNIQUE[(rows,)](x, {parameters}out, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8)
        return out
"""
)
PRODUCT = (
    HEAD
    + """def product_UNIQUE(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, 32)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, n, 32):
        x = tl.load(x_ptr + rows[:, None] * n + (start + inner)[None, :], mask=(rows < n)[:, None], other=0.0)
        y = tl.load(y_ptr + (start + inner)[:, None] * n + columns[None, :], mask=(columns < n)[None, :], other=0.0)
        total += tl.dot(x, y)
    mask = (rows < n)[:, None] & (columns < n)[None, :] & (rows != -UNIQUE)[:, None]
    tl.store(out_ptr + rows[:, None] * n + columns[None, :], total, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        n = x.shape[0]
        block = 64 if n >= 64 else 32
        product_UNIQUE[(triton.cdiv(n, block), triton.cdiv(n, block))](x, y, out, n, BLOCK=block)
        return out
"""
)
CUDA = r"""import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r'''
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void fused_UNIQUE(const float* __restrict__ x_ptr, float* __restrict__ out, long n) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i >= n || i == 10000000000L + UNIQUE) return;
    float x = x_ptr[i];
    out[i] = VALUE;
}

torch::Tensor fused(torch::Tensor x) {
    TORCH_CHECK(x.is_contiguous(), "needs a contiguous input");
    auto out = torch::empty_like(x);
    long n = x.numel();
    fused_UNIQUE<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
'''
extension = load_inline(
    name="fused_UNIQUE",
    cpp_sources="torch::Tensor fused(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["fused"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.fused(x)
"""
_ONE = {  # What torch writes, what a Triton kernel writes, and what a CUDA kernel writes.
    "swish": ("x * torch.sigmoid(x)", "x * tl.sigmoid(x)", "x / (1.0f + expf(-x))"),
    "gate": (
        "x * torch.sigmoid(1.5 * x) + 0.5",
        "x * tl.sigmoid(1.5 * x) + 0.5",
        "x / (1.0f + expf(-1.5f * x)) + 0.5f",
    ),
    "leaky": ("torch.nn.functional.leaky_relu(x, 0.1)", "tl.where(x > 0, x, 0.1 * x)", "x > 0.0f ? x : 0.1f * x"),
}
_TWO = {
    "add_relu": ("torch.relu(x + y)", "tl.maximum(x + y, 0.0)"),
    "swiglu": ("torch.nn.functional.silu(x) * y", "x * tl.sigmoid(x) * y"),
}
_WEIGHT = """    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones({columns}))

"""
_WEIGHT_AND_BIAS = """    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones({columns}))
        self.bias = nn.Parameter(torch.zeros({columns}))

"""
_ROWS = {  # forward, constructor, body, what masked elements are, parameters
    "softmax": (
        "torch.softmax(x, dim=-1)",
        "",
        "    e = tl.exp(x - tl.max(x, axis=0))\n    value = e / tl.sum(e, axis=0)",
        '-float("inf")',
        (),
    ),
    "unit_rows": (
        "x / x.norm(dim=-1, keepdim=True)",
        "",
        "    value = x / tl.sqrt(tl.sum(x * x, axis=0))",
        "0.0",
        (),
    ),
    "rms_norm": (
        "x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight",
        _WEIGHT,
        "    weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0)\n"
        "    value = x / tl.sqrt(tl.sum(x * x, axis=0) / columns + 1e-6) * weight",
        "0.0",
        ("weight",),
    ),
    "layer_norm": (
        "torch.nn.functional.layer_norm(x, (COLUMNS,), self.weight, self.bias)",
        _WEIGHT_AND_BIAS,
        "    weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0)\n"
        "    bias = tl.load(bias_ptr + offsets, mask=mask, other=0.0)\n"
        "    centred = tl.where(mask, x - tl.sum(x, axis=0) / columns, 0.0)\n"
        "    value = centred / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + 1e-5) * weight + bias",
        "0.0",
        ("weight", "bias"),
    ),
}


@dataclass(frozen=True)
class Case:
    """A problem, and kernels for it with a place for what makes each copy distinct."""

    problem: Problem
    triton: str
    cuda: str | None
    signature: dict[str, str]
    """Types of the Triton kernel's arguments, to compile it without running it."""

    def candidate(self, number: int, language: Literal["triton", "cuda"] = "triton") -> Candidate:
        """A candidate whose kernel is that of no other number."""
        source = self.triton if language == "triton" else self.cuda
        assert source is not None
        return Candidate(source=source.replace("UNIQUE", str(100_000 + number)), language=language)


def cases(size: Size) -> list[Case]:
    """All ten, at one size."""
    rows, columns = SIZES[size]
    draw = "torch.randn(ROWS, COLUMNS)"
    found: list[Case] = []
    for name, (torch_text, triton_text, cuda_text) in _ONE.items():
        found.append(_elementwise(name, size, torch_text, triton_text, cuda_text, ["x"]))
    for name, (torch_text, triton_text) in _TWO.items():
        found.append(_elementwise(name, size, torch_text, triton_text, None, ["x", "y"]))
    for name, (forward, constructor, body, other, parameters) in _ROWS.items():
        problem = PROBLEM.format(
            rows=rows,
            columns=columns,
            constructor=constructor.format(columns="COLUMNS"),
            arguments="x",
            forward=forward,
            inputs=draw,
        )
        kernel = ROWWISE.format(
            pointers="".join(f"{parameter}_ptr, " for parameter in parameters),
            parameters="".join(f"self.{parameter}, " for parameter in parameters),
            constructor=constructor.format(columns=columns),
            body=body,
            other=other,
        )
        pointers = ["x_ptr", *(f"{parameter}_ptr" for parameter in parameters), "out_ptr"]
        signature = dict.fromkeys(pointers, "*fp32") | {"columns": "i32", "BLOCK": "constexpr"}
        found.append(Case(_problem(name, size, problem), kernel, None, signature))
    n = PRODUCT_SIZES[size]
    problem = PROBLEM.format(
        rows=n, columns=n, constructor="", arguments="x, y", forward="x @ y", inputs=f"{draw}, {draw}"
    )
    signature = dict.fromkeys(["x_ptr", "y_ptr", "out_ptr"], "*fp32") | {"n": "i32", "BLOCK": "constexpr"}
    found.append(Case(_problem("product", size, problem), PRODUCT, None, signature))
    return found


def _elementwise(
    name: str, size: Size, torch_text: str, triton_text: str, cuda_text: str | None, inputs: list[str]
) -> Case:
    rows, columns = SIZES[size]
    arguments = ", ".join(inputs)
    problem = PROBLEM.format(
        rows=rows,
        columns=columns,
        constructor="",
        arguments=arguments,
        forward=torch_text,
        inputs=", ".join(["torch.randn(ROWS, COLUMNS)"] * len(inputs)),
    )
    kernel = ELEMENTWISE.format(
        pointers=", ".join(f"{one}_ptr" for one in inputs),
        loads="\n".join(f"    {one} = tl.load({one}_ptr + offsets, mask=mask)" for one in inputs),
        value=triton_text,
        arguments=arguments,
    )
    signature = dict.fromkeys([*(f"{one}_ptr" for one in inputs), "out_ptr"], "*fp32")
    signature |= {"n": "i32", "BLOCK": "constexpr"}
    cuda = CUDA.replace("VALUE", cuda_text) if cuda_text else None
    return Case(_problem(name, size, problem), kernel, cuda, signature)


def _problem(name: str, size: Size, source: str) -> Problem:
    return Problem(name=name, source=source, size=size)
