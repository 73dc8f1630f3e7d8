"""Honest kernels as people write them: each must give what torch gives."""

import functools
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.tools.tensor_descriptor import TensorDescriptor

from kerneldojo.devices.interpreter import UnsupportedOnDevice


@triton.jit
def softmax(x, o, length, stride, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    mask = i < length
    values = tl.load(x + row * stride + i, mask=mask, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(o + row * stride + i, values / tl.sum(values, axis=0), mask=mask)


def test_softmax():
    x = torch.randn(7, 100, device="cuda")
    o = torch.empty_like(x)
    softmax[(7,)](x, o, 100, x.stride(0), B=triton.next_power_of_2(100))
    torch.testing.assert_close(o, x.softmax(-1))


@triton.jit
def layer_norm(x, w, b, o, mean_out, length, eps, B: tl.constexpr):
    row = tl.program_id(0)
    x += row * length
    total = 0.0
    for start in range(0, length, B):
        i = start + tl.arange(0, B)
        total += tl.sum(tl.load(x + i, mask=i < length, other=0.0).to(tl.float32), axis=0)
    mean = total / length
    square = tl.zeros([B], dtype=tl.float32)
    for start in range(0, length, B):
        i = start + tl.arange(0, B)
        d = tl.where(i < length, tl.load(x + i, mask=i < length, other=0.0).to(tl.float32) - mean, 0.0)
        square += d * d
    scale = 1 / tl.sqrt(tl.sum(square, axis=0) / length + eps)
    tl.store(mean_out + row, mean)
    for start in range(0, length, B):
        i = start + tl.arange(0, B)
        m = i < length
        y = (tl.load(x + i, mask=m).to(tl.float32) - mean) * scale * tl.load(w + i, mask=m) + tl.load(b + i, mask=m)
        tl.store(o + row * length + i, y, mask=m)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layer_norm_with_runtime_loops_and_two_outputs(dtype):
    x, w, b = torch.randn(5, 70).to(dtype), torch.randn(70).to(dtype), torch.randn(70).to(dtype)
    o, mean = torch.empty_like(x), torch.empty(5)
    layer_norm[(5,)](x, w, b, o, mean, 70, 1e-5, B=32)
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    expected = torch.nn.functional.layer_norm(x.float(), (70,), w.float(), b.float())
    torch.testing.assert_close(o.float(), expected, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(mean, x.float().mean(-1), rtol=1e-4, atol=1e-5)


@triton.jit
def blocked(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    program = tl.program_id(axis=0)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = program // (GROUP * columns)
    size = min(rows - group * GROUP, GROUP)
    m = group * GROUP + (program % (GROUP * columns)) % size
    n = (program % (GROUP * columns)) // size
    left = tl.make_block_ptr(a, (M, K), (K, 1), (m * BM, 0), (BM, BK), (1, 0))
    right = tl.make_block_ptr(b, (K, N), (N, 1), (0, n * BN), (BK, BN), (1, 0))
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(tl.cdiv(K, BK)):
        total = tl.dot(tl.load(left, boundary_check=(0, 1)), tl.load(right, boundary_check=(0, 1)), total)
        left = tl.advance(left, (0, BK))
        right = tl.advance(right, (BK, 0))
    out = tl.make_block_ptr(c, (M, N), (N, 1), (m * BM, n * BN), (BM, BN), (1, 0))
    tl.store(out, total.to(tl.float16), boundary_check=(0, 1))


def test_block_pointers_with_grouped_order():
    a, b = torch.randn(70, 50).half(), torch.randn(50, 45).half()
    c = torch.empty(70, 45).half()
    blocked[(triton.cdiv(70, 16) * triton.cdiv(45, 16),)](a, b, c, 70, 45, 50, BM=16, BN=16, BK=16, GROUP=2)
    torch.testing.assert_close(c.float(), a.float() @ b.float(), rtol=2e-3, atol=2e-2)


@triton.jit
def described(x, o, B: tl.constexpr):
    row = tl.program_id(0) * B
    o.store([row, 0], x.load([row, 0]) * 2)


def test_tensor_descriptors():
    x, o = torch.randn(32, 16), torch.empty(32, 16)
    describe = functools.partial(TensorDescriptor, shape=[32, 16], strides=[16, 1], block_shape=[16, 16])
    described[(2,)](describe(x), describe(o), B=16)
    assert torch.equal(o, 2 * x)


@triton.autotune(
    configs=[triton.Config({"B": 32}, num_warps=2), triton.Config({"B": 64}), triton.Config({"B": 4096})],
    key=["n"],
    reset_to_zero=["total"],
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["B"] == 0})
@triton.jit
def scaled(x, o, total, factor, n, B: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    values = tl.load(x + i) if EVEN else tl.load(x + i, mask=i < n, other=0.0)
    tl.atomic_add(total, tl.sum(values))
    if EVEN:
        tl.store(o + i, values * factor)
    else:
        tl.store(o + i, values * factor, mask=i < n)


def test_autotune_over_heuristics_with_atomics():
    x, total = torch.randn(1000), torch.full((1,), 5.0)
    o = torch.empty_like(x)
    scaled[lambda meta: (triton.cdiv(1000, meta["B"]),)](x, o, total, 3.0, 1000)
    assert torch.equal(o, x * 3)
    torch.testing.assert_close(total, x.sum()[None], rtol=1e-4, atol=1e-4)
    assert scaled.best_config.kwargs == {"B": 32}, "none fills the GPU: the one with the most programs"


def test_autotuner_takes_the_fewest_programs_that_fill_the_gpu():
    n = 32 * 1000
    x, total = torch.randn(n), torch.zeros(1)
    scaled[lambda meta: (triton.cdiv(n, meta["B"]),)](x, torch.empty_like(x), total, 3.0, n)
    assert scaled.best_config.kwargs == {"B": 64}


@triton.jit
def first_of(a_value, a_key, b_value, b_key):
    earlier = a_key <= b_key
    return tl.where(earlier, a_value, b_value), tl.where(earlier, a_key, b_key)


@triton.jit
def affine(a, b, c, d):
    return a * c, b * c + d


@triton.jit
def collective(x, o, N: tl.constexpr, B: tl.constexpr):
    r, c = tl.arange(0, N)[:, None], tl.arange(0, B)[None, :]
    values = tl.load(x + r * B + c)
    tl.store(o + r * B + c, tl.cumsum(values, axis=1))
    tl.store(o + N * B + r * B + c, tl.sort(values))
    tl.store(o + 2 * N * B + r * B + c, tl.cumsum(values, axis=1, reverse=True))
    picked, _ = tl.reduce((values, tl.broadcast_to(c, (N, B))), 1, first_of)
    tl.store(o + 3 * N * B + tl.arange(0, N), picked)
    tl.store(o + 3 * N * B + N + tl.arange(0, N), tl.argmax(values, axis=1).to(tl.float32))
    _, scan = tl.associative_scan((values, values), 1, affine)
    tl.store(o + 4 * N * B + r * B + c, scan)
    tl.store(o + 5 * N * B, tl.min(values))
    tl.store(o + 5 * N * B + 1, tl.sum(tl.sum(values, axis=1, keep_dims=True)))


def test_scans_sorts_and_custom_reductions():
    n, b = 4, 16
    x, o = torch.randn(n, b), torch.zeros(6 * n * b)
    collective[(1,)](x, o, N=n, B=b)
    part = [o[i * n * b : (i + 1) * n * b].reshape(n, b) for i in range(5)]
    torch.testing.assert_close(part[0], x.cumsum(1))
    assert torch.equal(part[1], x.sort(1).values)
    torch.testing.assert_close(part[2], x.flip(1).cumsum(1).flip(1))
    assert torch.equal(part[3].flatten()[:n], x[:, 0])
    assert torch.equal(part[3].flatten()[n : 2 * n], x.argmax(1).float())
    expected, state = torch.empty_like(x), torch.zeros(n)
    for j in range(b):
        state = state * x[:, j] + x[:, j]
        expected[:, j] = state
    torch.testing.assert_close(part[4], expected)
    assert o[5 * n * b] == x.min()
    torch.testing.assert_close(o[5 * n * b + 1], x.sum())


@triton.jit
def helper(x, SCALE: tl.constexpr):
    y = x * SCALE
    return y + 1


@triton.jit
def control(x, o, flag, n, limit, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + i, mask=i < n and i >= 0)
    if flag:
        value = helper(value, SCALE=2.0)
    k = 0
    while k < limit:
        value += k
        k += 1
    for step in tl.static_range(3):
        value += step
    for step in tl.range(0, limit, num_stages=2):
        value += step.to(tl.float32)
    if limit > 2 and not n < 0:
        value = -value
    tl.device_print("value", value)
    tl.static_print("never seen")
    tl.store(o + i, value, mask=i < n)


@pytest.mark.parametrize("flag", [True, False])
def test_control_flow_and_silence(flag, capfd):
    x = torch.randn(40)
    o = torch.empty_like(x)
    control[(3,)](x, o, flag, 40, 3, B=16)
    torch.testing.assert_close(o, -((x * 2 + 1 if flag else x) + 3 + 3 + 3))
    assert capfd.readouterr().out == ""


def made_in_a_function(exponent):
    @triton.jit
    def power(x, o, B: tl.constexpr):
        i = tl.arange(0, B)
        value = tl.load(x + i)
        result = value
        for _ in tl.static_range(exponent - 1):
            result = result * value
        tl.store(o + i, result)

    return power


def test_kernels_that_close_over_variables():
    x, o = torch.rand(16), torch.empty(16)
    for exponent in (2, 3):
        made_in_a_function(exponent)[(1,)](x, o, B=16)
        torch.testing.assert_close(o, x**exponent)


@triton.jit
def grid3(o, X: tl.constexpr, Y: tl.constexpr):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    tl.store(o + (z * Y + y) * X + x, x + 10 * y + 100 * z + 1000 * tl.num_programs(1))


def test_three_dimensional_grid():
    o = torch.zeros(2, 3, 4, dtype=torch.int32)
    grid3[(4, 3, 2)](o, X=4, Y=3)
    z, y, x = torch.meshgrid(torch.arange(2), torch.arange(3), torch.arange(4), indexing="ij")
    assert torch.equal(o, (x + 10 * y + 100 * z + 3000).int())


@triton.jit
def histogram(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(o + tl.load(x + i, mask=i < n, other=0), 1, mask=i < n)


@triton.jit
def add_half(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.atomic_add(o + i % 4, tl.load(x + i), mask=i < n)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_atomics(dtype):
    x, o = torch.randint(0, 8, (100,), dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
    histogram[(4,)](x, o, 100, B=32)
    assert torch.equal(o, torch.bincount(x, minlength=8).int())
    values, sums = torch.arange(16).to(dtype), torch.zeros(4, dtype=dtype)
    add_half[(1,)](values, sums, 16, B=16)
    assert torch.equal(sums.float(), values.float().reshape(4, 4).sum(0))


@triton.jit
def with_dtype(x, o, KIND: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(x + i).to(KIND).to(tl.float32))


def test_launch_arguments_are_checked_as_on_a_gpu():
    x, o = torch.randn(16), torch.empty(16)
    with_dtype[(1,)](x, o, KIND=tl.float16, B=16, num_warps=2, num_stages=1)
    assert torch.equal(o, x.half().float())
    with pytest.raises(KeyError, match="waves_per_eu"):
        with_dtype[(1,)](x, o, KIND=tl.float16, B=16, waves_per_eu=2)
    with pytest.raises(TypeError):
        with_dtype[(1,)](x, KIND=tl.float16, B=16)
    with pytest.raises(RuntimeError, match="invalid argument"):
        with_dtype[(1, 70000)](x, o, KIND=tl.float16, B=16)


def test_the_kernels_module_gets_no_new_names():
    softmax[(1,)](torch.zeros(1, 4), torch.zeros(1, 4), 4, 4, B=4)
    assert not {"np", "interpreter_builder", "InterpreterError", "ast"} & set(globals())


def test_persistent_kernel_sized_by_warm_up():
    x, o = torch.randn(5, 8, device="cuda"), torch.empty(5, 8)
    warm = softmax.warmup(x, o, 8, 8, B=8, grid=(1,))
    warm._init_handles()
    assert warm.n_regs > 0
    assert triton.runtime.driver.active.utils.get_device_properties(0)["multiprocessor_count"] == 132
    warm[(5, 1, 1)](x, o, 8, 8, 8)
    torch.testing.assert_close(o, x.softmax(-1))


@gluon.jit
def in_gluon(x, n: gl.constexpr):
    i = gl.arange(0, n, layout=gl.BlockedLayout([1], [32], [1], [0]))
    gl.store(x + i, gl.load(x + i) + 1)


def test_gluon_is_unsupported_and_not_wrong():
    with pytest.raises(UnsupportedOnDevice, match="Gluon needs a GPU"):
        in_gluon[(1,)](torch.zeros(32, device="cuda"), 32)


@triton.jit
def from_a_thread(x, o, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i) * 2)


def test_threads_may_launch_at_once():
    inputs = [torch.randn(64 * 32, device="cuda") for _ in range(8)]
    outputs = [torch.empty_like(x) for x in inputs]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda pair: from_a_thread[(64,)](*pair, B=32), zip(inputs, outputs, strict=True)))
    for x, o in zip(inputs, outputs, strict=True):
        assert torch.equal(o, 2 * x)
