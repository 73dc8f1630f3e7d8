"""Numbers: products in each class, bfloat16, casts, NaN rules, libdevice."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice

from kerneldojo.devices.interpreter import UnsupportedOnDevice
from kerneldojo.devices.interpreter.floats import round_tf32


@triton.jit
def product(a, b, c, M, N, K, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        inner = k + tl.arange(0, BK)
        left = tl.load(
            a + rows[:, None] * K + inner[None, :], mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0
        )
        right = tl.load(
            b + inner[:, None] * N + columns[None, :], mask=(inner[:, None] < K) & (columns[None, :] < N), other=0.0
        )
        total += tl.dot(left, right, input_precision=PRECISION)
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(c.dtype.element_ty), mask=mask)


def multiply(a, b, precision=None):
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype)
    grid = (triton.cdiv(a.shape[0], 32), triton.cdiv(b.shape[1], 32))
    product[grid](a, b, c, a.shape[0], b.shape[1], a.shape[1], PRECISION=precision, BM=32, BN=32, BK=16)
    return c


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_product_is_right_in_its_class(dtype):
    a, b = torch.randn(50, 70).to(dtype), torch.randn(70, 40).to(dtype)
    exact = a.double() @ b.double()
    error = (multiply(a, b, "ieee").double() - exact).abs().max() / exact.std()
    assert error < {torch.float32: 2e-6, torch.float16: 3e-3, torch.bfloat16: 2e-2}[dtype]


def test_bfloat16_product_rounds_only_its_result():
    a, b = torch.randn(32, 16).bfloat16(), torch.randn(16, 32).bfloat16()
    assert torch.equal(multiply(a, b), (a.float() @ b.float()).bfloat16())


def test_float32_product_uses_tf32_unless_told_otherwise():
    a, b = torch.randn(64, 512), torch.randn(512, 64)
    exact = a.double() @ b.double()
    ieee, default, tf32 = ((multiply(a, b, p).double() - exact).std() for p in ("ieee", None, "tf32"))
    assert default == tf32
    assert tf32 > 100 * ieee
    rounded = torch.from_numpy(round_tf32(a.numpy())).double() @ torch.from_numpy(round_tf32(b.numpy())).double()
    assert (multiply(a, b, "tf32").double() - rounded).abs().max() < 1e-4


def test_tf32_rounding_keeps_ten_bits_and_what_is_not_finite():
    values = np.array([1 + 2**-10, 1 + 2**-11, 1 + 2**-12, -1 - 2**-11, np.inf, -np.inf, np.nan, 0.0], np.float32)
    wanted = np.array([1 + 2**-10, 1, 1, -1, np.inf, -np.inf, np.nan, 0.0], np.float32)
    np.testing.assert_array_equal(round_tf32(values), wanted)


@triton.jit
def polynomial(x, y, o, alpha, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + i, mask=i < n)
    b = tl.load(y + i, mask=i < n)
    s = tl.load(x)
    tl.store(o + i, a * b + a - b + s * a, mask=i < n)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_arithmetic_rounds_after_each_operation(dtype):
    x, y = torch.randn(1000).to(dtype), torch.randn(1000).to(dtype)
    o = torch.empty_like(x)
    polynomial[(4,)](x, y, o, 1.0, 1000, B=256)
    assert torch.equal(o, x * y + x - y + x[0] * x)


@triton.jit
def cast(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n).to(o.dtype.element_ty), mask=i < n)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (torch.float32, torch.bfloat16),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float16),
        (torch.float16, torch.bfloat16),
        (torch.float32, torch.float8_e4m3fn),
        (torch.float8_e5m2, torch.float32),
        (torch.float32, torch.int32),
        (torch.int32, torch.bfloat16),
        (torch.bool, torch.float32),
        (torch.int64, torch.int8),
    ],
)
def test_casts_round_as_torch_does(source, target):
    x = (torch.randn(256) * 10).to(source)
    o = torch.zeros(256, dtype=torch.float32).to(target)
    cast[(1,)](x, o, 256, B=256)
    assert torch.equal(o.float(), x.to(target).float())


def test_casting_to_integers_saturates_as_hardware_does():
    x = torch.tensor([1e20, -1e20, float("nan"), float("inf"), 2.9, -2.9])
    o = torch.empty(6, dtype=torch.int32)
    cast[(1,)](x, o, 6, B=8)
    assert o.tolist() == [2**31 - 1, -(2**31), 0, 2**31 - 1, 2, -2]


@triton.jit
def extremes(x, y, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(o + i, tl.maximum(a, b))
    tl.store(o + B + i, tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL))
    tl.store(o + 2 * B + i, tl.clamp(a, -1.0, 1.0))
    tl.store(o + 3 * B, tl.max(a, axis=0))


def test_a_number_wins_over_nan():
    nan = float("nan")
    x, y, o = torch.tensor([nan, 1.0, nan, 3.0]), torch.tensor([1.0, nan, nan, 2.0]), torch.zeros(13)
    extremes[(1,)](x, y, o, 4, B=4)
    assert torch.equal(o[:4].nan_to_num(9), torch.tensor([1.0, 1.0, 9.0, 3.0]))
    assert torch.equal(o[4:8].nan_to_num(9), torch.tensor([9.0, 9.0, 9.0, 2.0]))
    assert o[12] == 3


LIBRARY = {
    "exp": torch.exp,
    "log": lambda x: torch.log(x.abs()),
    "tanh": torch.tanh,
    "erf": torch.erf,
    "rsqrt": lambda x: torch.rsqrt(x.abs()),
    "expm1": torch.expm1,
    "atan": torch.atan,
    "fast_expf": torch.exp,
    "fast_tanf": torch.tan,
    "round": lambda x: torch.sign(x) * torch.floor(x.abs() + 0.5),
    "normcdf": torch.special.ndtr,
    "cyl_bessel_i0": torch.special.i0,
}


@triton.jit
def library(x, o, F: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    tl.store(o + i, F(tl.abs(a) if ABSOLUTE else a))


ABSOLUTE = False


@pytest.mark.parametrize("module", [libdevice, cuda_libdevice])
@pytest.mark.parametrize("name", sorted(LIBRARY))
def test_libdevice(module, name):
    global ABSOLUTE
    if not hasattr(module, name):
        pytest.skip("not part of this module")
    ABSOLUTE = name in ("log", "rsqrt")
    x, o = torch.randn(64), torch.empty(64)
    library[(1,)](x, o, F=getattr(module, name), B=64)
    torch.testing.assert_close(o, LIBRARY[name](x), rtol=2e-5, atol=2e-6)


@triton.jit
def two_operands(x, y, o, B: tl.constexpr):
    i = tl.arange(0, B)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(o + i, tl.extra.cuda.libdevice.pow(a, b) + libdevice.fmod(a, b) + libdevice.atan2(a, b))


def test_libdevice_with_two_operands():
    x, y, o = torch.rand(32) + 0.5, torch.rand(32) + 0.5, torch.empty(32)
    two_operands[(1,)](x, y, o, B=32)
    torch.testing.assert_close(o, x.pow(y) + torch.fmod(x, y) + torch.atan2(x, y))


@triton.jit
def assembly(x, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    tl.store(x + i, tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [a], dtype=tl.float32, is_pure=True, pack=1))


def test_inline_assembly_is_unsupported():
    with pytest.raises(UnsupportedOnDevice, match="inline assembly"):
        assembly[(1,)](torch.zeros(16), B=16)
