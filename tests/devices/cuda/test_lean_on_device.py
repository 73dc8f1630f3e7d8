"""A lean context has more of the device to spare, and kernels that need a stack have one all the same."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.gpu

OPENED = """
import sys
import torch
from kerneldojo.contestant.tree import decode
from kerneldojo.devices.cuda import warm

warm.prepare()
from kerneldojo.devices.cuda.platform import CudaPlatform

CudaPlatform("cuda:0", decode).open(is_lean=sys.argv[1] == "lean")
print("open", flush=True)
input()
kernel = torch.cuda._compile_kernel('''
extern "C" __global__ void deep(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int a[1024];  // 4 KiB, at places that nobody knows beforehand
    for (int k = 0; k < 1024; ++k) a[(k * x[i]) & 1023] = k;
    int sum = 0;
    for (int k = 0; k < 1024; ++k) sum += a[(k * x[i]) & 1023];
    y[i] = sum;
}''', "deep")
x = torch.randint(0, 512, (1 << 16,), device="cuda", dtype=torch.int32) * 2 + 1
y = torch.zeros_like(x)
kernel(grid=(256, 1, 1), block=(256, 1, 1), args=(x, y, x.numel()))
torch.cuda.synchronize()
print(bool((y == 1023 * 512).all()), flush=True)
"""


def opened(how: str) -> tuple[float, str]:
    """MiB that a context takes, and what a kernel with a deep stack then says."""
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", OPENED, how], **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        taken = before - torch.cuda.mem_get_info()[0]
        said, _ = process.communicate("\n", timeout=120)
    return taken / (1 << 20), said.strip()


def test_a_lean_context_takes_less_and_does_what_others_do() -> None:
    torch.zeros(1, device="cuda")
    usual, says_usual = opened("usual")
    lean, says_lean = opened("lean")
    print(f"a context takes {usual:.0f} MiB, a lean one {lean:.0f}")
    assert lean < usual - 32
    assert says_usual == says_lean == "True"
