"""All sets of a round are written by one launch: what each holds is what it would hold if it were rotated by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from kerneldojo.devices.cuda import rotation

DTYPES = (torch.float32, torch.float16, torch.uint8, torch.int64, torch.complex128, torch.bool)


def check(device: str, sizes: tuple[int, ...]) -> int:
    """Rotate some tensors of each type and size; returns how many were compared."""
    from kerneldojo.devices.cuda.rotation import Rotation, can_launch, is_right, launch, rotate, rows

    num = 0
    for dtype in DTYPES:
        for size in sizes:
            memory = torch.zeros(4 * (size + 3), dtype=dtype, device=device)
            sources = [torch.randn(size + 1, device=device).mul(50).to(dtype)[1:] for _ in range(2)]
            distances = [0, size - 1, size // 2, 1 % size]
            targets = [memory[index * (size + 3) + 1 :][:size] for index in range(4)]
            parts = [(0, 0, 0), (0, 0, size), (size // 3, size // 5, size // 4), (size - 1, 0, 1)]
            rotations = [
                Rotation(targets[i], sources[i % 2], distances[i], sources[1 - i % 2] if has_part else None, *parts[i])
                for i in range(4)
                for has_part in (parts[i][2] > 0,)
            ]
            launch(rows(rotations), targets[0])
            for one, (begin, origin, length) in zip(rotations, parts, strict=True):
                wanted = one.source.roll(one.distance)
                if one.other is not None:
                    wanted[begin : begin + length] = one.other[origin : origin + length]
                assert torch.equal(one.target, wanted), (dtype, size, one.distance)
                one.target.zero_()
                rotate(one)
                assert torch.equal(one.target, wanted)
                num += 1
            gaps = [memory[index * (size + 3)] for index in range(4)]
            assert not any(bool(gap) for gap in gaps), "beside them nothing was written"
    assert all(is_right(torch.device(device), item) for item in (1, 2, 4, 8, 16))
    assert not can_launch(torch.zeros(0, device=device)), "there is nothing to launch for"
    assert can_launch(torch.zeros(1, device=device)) == (device != "cpu")
    return num


def test_interpreted() -> None:
    script = "import sys; sys.path[:0] = [sys.argv[1]]; import test_rotation; "
    script += "print(test_rotation.check('cpu', (1, 2, 300, 5000)))"
    done = subprocess.run(
        [sys.executable, "-c", script, str(Path(__file__).parent)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"{4 * 4 * len(DTYPES)}\n", done.stderr


def test_a_launch_that_is_wrong_is_not_used(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def wrong(rows: npt.NDArray[np.int64], target: torch.Tensor) -> None:
        target.zero_()

    def fails(_: npt.NDArray[np.int64], __: torch.Tensor) -> None:
        raise RuntimeError("no such pointer")

    rotation.is_right.cache_clear()
    monkeypatch.setattr(rotation, "launch", wrong)
    assert not rotation.is_right(torch.device("cpu"), 4)
    monkeypatch.setattr(rotation, "launch", fails)
    assert not rotation.is_right(torch.device("cpu"), 8)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    rotation.is_right.cache_clear()


def test_it_compiles_for_a_gpu() -> None:
    """Without one: addresses become pointers of each type."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    from kerneldojo.devices.cuda.rotation import _rotate_kernel

    for word in ("i8", "i16", "i32", "i64"):
        signature = {"table": "*i64", "typed": f"*{word}", "length": "i64", "BLOCK": "constexpr"}
        source = ASTSource(_rotate_kernel, signature, {"BLOCK": 4096})
        made = compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8})
        assert made.asm["cubin"]


@pytest.mark.gpu
def test_on_a_gpu() -> None:
    assert check("cuda", (1, 300, 5000, 1_000_003)) == 4 * 4 * len(DTYPES)
