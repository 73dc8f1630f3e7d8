"""One worked example a language: a reference and an answer to it that the judge passes.

The problem is small and none of those that are benchmarked (a sum of two vectors, as KernelBench shows too), so that it
teaches the form of an answer and gives no solution away.
"""

from __future__ import annotations

from kerneldojo.schema import SourceLanguage

REFERENCE = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b


def get_inputs():
    return [torch.randn(4096, 128), torch.randn(4096, 128)]


def get_init_inputs():
    return []
"""

TRITON = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(a_ptr, b_ptr, out_ptr, num_elements, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < num_elements
    a = tl.load(a_ptr + offsets, mask=mask)
    b = tl.load(b_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, a + b, mask=mask)


class ModelNew(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a, b = a.contiguous(), b.contiguous()
        out = torch.empty_like(a)
        num_elements = out.numel()
        add_kernel[(triton.cdiv(num_elements, 1024),)](a, b, out, num_elements, BLOCK=1024)
        return out
"""

CUDA = '''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void add_kernel(const float* a, const float* b, float* out, int64_t num_elements) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < num_elements) out[i] = a[i] + b[i];
}

torch::Tensor add(torch::Tensor a, torch::Tensor b) {
    auto out = torch::empty_like(a);
    int64_t num_elements = a.numel();
    int64_t num_blocks = (num_elements + 255) / 256;
    add_kernel<<<num_blocks, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), num_elements);
    return out;
}
"""

module = load_inline(
    name="vector_add",
    cpp_sources="torch::Tensor add(torch::Tensor a, torch::Tensor b);",
    cuda_sources=CUDA_SOURCE,
    functions=["add"],
)


class ModelNew(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return module.add(a.contiguous(), b.contiguous())
'''

ANSWERS: dict[SourceLanguage, str] = {"triton": TRITON, "cuda": CUDA}
"""The answer to `REFERENCE` in each language."""
