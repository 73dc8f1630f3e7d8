"""One pass over tensors says what sixty say, and where it says that all is well, all is well."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kerneldojo.problems import budget as budgets
from kerneldojo.problems import tolerance

SMALL = ((2, 300), (3, 64), (1,), (3, 70), (17_000,))
SHAPES = (*SMALL, (7, 5, 13), (400_000,), (2, 20_000), (64, 33, 65))
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def check(device: str, num: int) -> list[int]:
    """Compare both ways on random tensors; returns how many were refused and how many passed."""
    chance, outcomes = random.Random(0), [0, 0]
    torch.manual_seed(0)
    for number in range(num):
        shape, dtype = chance.choice(SMALL if device == "cpu" else SHAPES), chance.choice(DTYPES)
        truth = torch.randn(shape, dtype=torch.float64, device=device)
        if number % 5 == 0:
            truth.view(-1)[0] = math.nan
        if number % 7 == 0:
            truth.view(-1)[-1] = math.inf
        native = truth.to(dtype)
        accepted = (truth * (1 + 1e-3 * torch.randn_like(truth))).to(dtype) if chance.random() < 0.5 else None
        error = chance.choice([0.0, 1e-7, 1e-3, 1e-2]) * torch.randn_like(truth)
        got = torch.empty(truth.numel() + 1, dtype=dtype, device=device)[1:].view(
            shape
        )  # Aligned to no more than it is.
        got.copy_(truth * (1 + error))
        if number % 11 == 0:
            got.view(-1)[0] = math.nan
        if number % 13 == 0:
            got.zero_()
        outcomes[agree(truth, got, native, accepted, chance.choice([1, 4096]))] += 1
    return outcomes


def agree(
    truth: torch.Tensor, got: torch.Tensor, native: torch.Tensor, accepted: torch.Tensor | None, length: int
) -> bool:
    """See that both ways say the same; returns whether it passes."""

    def compared(*, in_one: bool) -> tuple[budgets.Budget, tolerance.Comparison | None]:
        is_for_kernels = budgets.is_for_kernels
        budgets.is_for_kernels = lambda *_: in_one
        try:
            budget = budgets.make_budget(truth, native, accepted, reduction_length=length)
            compare = tolerance._pass_in_one if in_one else tolerance.compare
            return budget, compare(truth, got, budget)
        finally:
            budgets.is_for_kernels = is_for_kernels

    (quick, seen), (slow, said) = compared(in_one=True), compared(in_one=False)
    for name in ("row_rms", "row_tolerance", "row_unit"):
        torch.testing.assert_close(getattr(quick, name), getattr(slow, name), rtol=1e-12, atol=0.0)
    assert said is not None
    assert (seen is not None) == said.passed, (seen, said)
    if seen is not None:
        for name in ("max_error", "rms_error", "off_by"):
            assert math.isclose(getattr(seen, name), getattr(said, name), rel_tol=1e-9, abs_tol=1e-300), (seen, said)
    return said.passed


def test_the_kernels_agree_with_torch_where_they_are_interpreted() -> None:
    program = "import test_distances as t; print(min(t.check('cpu', 15)))"
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) > 2, "some passed, and some were refused"


@pytest.mark.gpu
def test_the_kernels_agree_with_torch_on_a_gpu() -> None:
    assert min(check("cuda", 150)) > 20


@pytest.mark.gpu
def test_one_row_may_have_more_elements_than_a_grid_has_programs_in_its_second_dimension() -> None:
    from kerneldojo.problems import distances

    count = 65_536 * distances.SPLIT + 5
    truth = torch.ones(count, dtype=torch.float16, device="cuda")
    native = truth.clone()
    native[-1] = 3.0
    rms, error = distances.row_errors(truth, (native,), count)
    assert rms.item() == 1.0
    assert math.isclose(error.item(), 2.0 / math.sqrt(count), rel_tol=1e-9)
    rows = distances.Rows(count, rms, error, error)
    found = distances.worst(truth, native, (truth,), rows, relative=1e-3, element_factor=4.0, floor_in_unit=0.1)
    assert not found.is_well
    assert (found.at, found.difference, found.num_finite) == (count - 1, 2.0, count)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "fp64"])
def test_the_kernels_compile_for_a_gpu(dtype: str) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from kerneldojo.problems import distances

    runs = dict.fromkeys(("answer", "first", "last"), f"*{dtype}")
    rows = dict.fromkeys(("truth", "row_tolerance", "row_unit", "facts"), "*fp64")
    types = {**runs, **rows, "width": "i32", "plane": "i32", "splits": "i32"}
    _, _, settings = distances._grid(1 << 20, 4096)
    warps = settings.pop("num_warps")
    for kernel, more in (
        (distances._row_kernel, {}),
        (distances._worst_kernel, {"RELATIVE": 1e-6, "FACTOR": 4.0, "UNIT_PART": 1e-7}),
    ):
        fixed = {**settings, **more}
        signature = {name: "constexpr" if name in fixed else types[name] for name in kernel.arg_names}
        source = ASTSource(kernel, signature, fixed)
        assert triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps}).asm["cubin"]
