"""One launch sees every change to what was written, and none where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kerneldojo.devices.cuda import comparison
from kerneldojo.devices.cuda.rotation import Rotation

DTYPES = (torch.float32, torch.float16, torch.uint8, torch.int64, torch.complex128)


def check(device: str, sizes: tuple[int, ...]) -> int:
    """Change each of some elements of some rotations; returns how many changes were seen."""
    from kerneldojo.devices.cuda.comparison import compare, is_right
    from kerneldojo.devices.cuda.rotation import Rotation, rotate

    num = 0
    for dtype in DTYPES:
        for size in sizes:
            source, other = (torch.randn(size, device=device).mul(50).to(dtype) for _ in range(2))
            around = torch.zeros(size + 2, dtype=dtype, device=device)
            part = (size // 3, size // 5, size // 4)
            for rotation in (
                Rotation(around[1:-1], source, size // 2),
                Rotation(around[1:-1], source, size - 1, other, *part),
            ):
                rotate(rotation)
                for place in (-1, *{0, size // 3, size // 2, size - 1}, size):
                    kept = around[place + 1].clone()
                    around[place + 1] += 1
                    found = torch.zeros((), dtype=torch.int32, device=device)
                    compare(rotation, found)
                    assert int(found) == (0 <= place < size), (dtype, size, place)
                    around[place + 1] = kept
                    num += int(found)
    assert all(is_right(torch.device(device), item) for item in (1, 2, 4, 8, 16))
    return num


def test_interpreted() -> None:
    script = "import sys; sys.path[:0] = [sys.argv[1]]; import test_comparison; "
    script += "print(test_comparison.check('cpu', (300, 5000)))"
    done = subprocess.run(
        [sys.executable, "-c", script, str(Path(__file__).parent)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"{4 * 2 * 2 * len(DTYPES)}\n", done.stderr


def test_one_that_is_wrong_is_not_used(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def blind(_: Rotation, found: torch.Tensor) -> None:
        found.zero_()

    def alarmed(_: Rotation, found: torch.Tensor) -> None:
        found.fill_(1)

    def fails(_: Rotation, __: torch.Tensor) -> None:
        raise RuntimeError("no such pointer")

    for wrong in (blind, alarmed, fails):
        comparison.is_right.cache_clear()
        monkeypatch.setattr(comparison, "compare", wrong)
        assert not comparison.is_right(torch.device("cpu"), 4)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    comparison.is_right.cache_clear()


def test_it_compiles_for_a_gpu() -> None:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    kernel: Any = comparison._compare_kernel
    for word in ("i8", "i16", "i32", "i64"):
        signature = {"table": "*i64", "typed": f"*{word}", "found": "*i32", "length": "i64", "BLOCK": "constexpr"}
        source = ASTSource(kernel, signature, {"BLOCK": 4096})
        made = compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8})
        assert made.asm["cubin"]


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    assert check("cuda", (300, 5000, 1_000_003)) == 4 * 2 * 3 * len(DTYPES)
