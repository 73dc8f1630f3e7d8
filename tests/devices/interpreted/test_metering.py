"""Counts are exact, silence is complete, and CUDA looks like CUDA."""

import json

import pytest
import torch
import triton
import triton.language as tl
from torch import nn

from kerneldojo.devices import interpreter
from kerneldojo.devices.interpreter import Meter, UnsupportedOnDevice, silenced
from kerneldojo.devices.work import Work, parse_works


@triton.jit
def add(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def product(a, b, c, K, B: tl.constexpr):
    i = tl.arange(0, B)
    row, column = tl.program_id(0) * B, tl.program_id(1) * B
    total = tl.zeros((B, B), dtype=tl.float32)
    for k in range(0, K, B):
        left = tl.load(a + (row + i)[:, None] * K + k + i[None, :])
        right = tl.load(b + (k + i)[:, None] * K + column + i[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + (row + i)[:, None] * K + column + i[None, :], total.to(c.dtype.element_ty))


def test_elementwise_counts():
    n = 1000
    x, y, o = torch.randn(n), torch.randn(n), torch.empty(n)
    with Meter() as meter:
        add[(4,)](x, y, o, n, B=256)
    (work,) = meter.works
    assert work.own
    assert work.name == "add"
    assert (work.grid, work.num_programs, work.num_launches) == ((4, 1, 1), 4, 1)
    assert work.read_bytes == 2 * 4 * n
    assert work.written_bytes == 4 * n
    assert work.accessed_bytes == 3 * 4 * n
    assert work.arithmetic == 4 * 256, "masked lanes add too"
    assert work.product_flops == 0


def test_aliased_and_repeated_reads_count_once_as_distinct():
    n = 256
    x, o = torch.randn(n), torch.empty(n)
    with Meter() as meter:
        add[(1,)](x, x, o, n, B=256)
    assert meter.works[0].read_bytes == 4 * n
    assert meter.works[0].accessed_bytes == 3 * 4 * n


@pytest.mark.parametrize(
    ("dtype", "precision"), [(torch.float16, "fp16"), (torch.bfloat16, "fp16"), (torch.float32, "tf32")]
)
def test_product_counts(dtype, precision):
    n, block = 64, 16
    a, b = torch.randn(n, n).to(dtype), torch.randn(n, n).to(dtype)
    c = torch.empty_like(a)
    with Meter() as meter:
        product[(4, 4)](a, b, c, n, B=block)
    (work,) = meter.works
    assert [(item.precision, item.flops) for item in work.products] == [(precision, 2.0 * n**3)]
    assert work.read_bytes == 2 * a.nbytes
    assert work.written_bytes == a.nbytes
    assert work.accessed_bytes == 2 * a.nbytes * (n // block) + a.nbytes
    assert work.operand_bytes == 2 * a.nbytes * (n // block)


def test_a_bigger_tile_accesses_fewer_bytes():
    a, b, c = torch.randn(64, 64), torch.randn(64, 64), torch.empty(64, 64)
    with Meter() as meter:
        product[(4, 4)](a, b, c, 64, B=16)
        product[(2, 2)](a, b, c, 64, B=32)
    small, big = meter.works
    assert small.identity == big.identity == 0
    assert small.specialization != big.specialization
    assert big.accessed_bytes < small.accessed_bytes
    assert big.read_bytes == small.read_bytes


@triton.jit
def strided(x, o, S, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(x + i * S))


def test_scattered_reads_move_whole_sectors():
    x, o = torch.randn(64 * 8), torch.empty(64)
    with Meter() as meter:
        strided[(1,)](x, o, 8, B=64)
    assert meter.works[0].read_bytes == 64 * 4
    assert meter.works[0].accessed_bytes == 64 * 32 + 64 * 4


def test_library_operations_and_views():
    x, w = torch.randn(8, 16), torch.randn(16, 4)
    with Meter() as meter:
        y = (x @ w).relu().T.reshape(4, 8)
        y.add_(1)
        torch.empty(100)
        nn.functional.conv2d(torch.ones(1, 2, 8, 8), torch.ones(3, 2, 3, 3))
    names = [work.name for work in meter.works]
    assert names[:3] == ["aten::mm", "aten::relu", "aten::add_"]
    mm = meter.works[0]
    assert [(item.precision, item.flops) for item in mm.products] == [("fp32", 2.0 * 8 * 16 * 4)]
    assert (mm.read_bytes, mm.written_bytes) == ((8 * 16 + 16 * 4) * 4, 8 * 4 * 4)
    assert "aten::add_" in names
    assert not any("view" in name or "empty" in name for name in names)
    convolution = next(work for work in meter.works if work.pattern == "convolution")
    assert [(item.precision, item.flops) for item in convolution.products] == [("tf32", 2.0 * 3 * 36 * 2 * 9)]


def test_attention_is_priced_by_its_flops():
    q = torch.randn(1, 2, 32, 16)
    with Meter() as meter:
        nn.functional.scaled_dot_product_attention(q, q, q)
    assert sum(work.product_flops for work in meter.works) == 2 * (2 * 2 * 32 * 32 * 16)


def test_work_survives_json_and_is_checked():
    x, o = torch.randn(64), torch.empty(64)
    with Meter() as meter:
        add[(1,)](x, x, o, 64, B=64)
        torch.relu(x)
    claims = json.loads(json.dumps([work.model_dump(mode="json") for work in meter.works]))
    assert parse_works(claims) == meter.works
    for field, value in (("arithmetic", float("nan")), ("accessed_bytes", -1), ("name", "x" * 999), ("more", 1)):
        with pytest.raises(ValueError):
            parse_works([{**claims[0], field: value}])
    with pytest.raises(ValueError):
        parse_works([claims[0]] * 20001)
    assert isinstance(meter.works[0], Work)


def test_kernels_of_one_name_are_told_apart():
    def make(factor):
        @triton.jit
        def kernel(x, B: tl.constexpr):
            tl.store(x + tl.arange(0, B), tl.load(x + tl.arange(0, B)) * factor)

        return kernel

    x = torch.ones(16)
    with Meter() as meter:
        first, second = make(2), make(3)
        for kernel in (first, second, first):
            kernel[(1,)](x, B=16)
    assert [work.identity for work in meter.works] == [0, 1, 0]
    assert x[0] == 12


@triton.autotune(configs=[triton.Config({"B": 16}), triton.Config({"B": 32}, num_warps=8)], key=["n"])
@triton.jit
def tuned(x, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, 1.0, mask=i < n)


def test_specializations_carry_every_configuration():
    x = torch.zeros(64)
    with Meter() as meter:
        tuned[lambda meta: (triton.cdiv(64, meta["B"]),)](x, 64)
    (item,) = meter.specializations
    assert meter.works[0].specialization == item.key
    assert [argument.type for argument in item.arguments] == ["*fp32", "i32", "constexpr"]
    assert [c.constants["B"].text for c in item.alternatives] == ["16", "32"]
    assert item.alternatives[1].options["num_warps"] == 8
    assert item.kernel.qualname == "tuned"


def test_silence_reaches_every_way_of_launching():
    x, y, o = torch.ones(64), torch.ones(64), torch.zeros(64)
    captured, alias = add[(1,)], add
    with silenced():
        captured(x, y, o, 64, B=64)
        alias[(1,)](x, y, o, 64, B=64)
        add.run(x, y, o, 64, B=64, grid=(1,), warmup=False)
        tuned[(4,)](o, 64)
        tuned.fn[(1,)](o, 64, B=64)
        with Meter() as meter:
            captured(x, y, o, 64, B=64)
    assert not o.any()
    assert not meter.works
    captured(x, y, o, 64, B=64)
    assert o.eq(2).all()


def test_a_kernel_does_not_run_outside_a_launch():
    with pytest.raises(RuntimeError, match="outside of the scope of a kernel"):
        add(torch.ones(1), torch.ones(1), torch.ones(1), 1, B=1)


def test_tensors_claim_to_be_on_cuda():
    x = torch.randn(4)
    assert x.is_cuda
    assert x.device == torch.device("cuda:0")
    assert x.device.type == "cuda"
    for y in (
        torch.empty(4, device="cuda"),
        torch.zeros(4, device=x.device),
        torch.arange(4, device=torch.device("cuda")),
        torch.empty_like(x, device="cuda:0"),
        x.to("cuda"),
        x.to(0),
        x.cuda(),
        x.to(device="cuda", dtype=torch.float16),
        x.pin_memory().cuda(non_blocking=True),
        x.new_zeros(3, device="cuda"),
        torch.tensor([1.0]).to(x.device),
        torch.randn(3, generator=torch.Generator(device="cuda").manual_seed(1), device="cuda"),
    ):
        assert y.is_cuda
        assert y.cpu().numpy() is not None
    model = nn.Linear(4, 4, device="cuda").cuda().to("cuda")
    assert next(model.parameters()).is_cuda
    assert model(x).device.index == 0
    with torch.device("cuda"):
        assert torch.ones(2).is_cuda
    assert torch.ones(2, device="meta").device.type == "meta"


def test_torch_cuda_answers():
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 1
    assert torch.cuda.get_device_capability() == (9, 0)
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    assert properties.multi_processor_count == 132
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(stream), torch.cuda.device(0):
        start.record()
        x = torch.ones(3, device="cuda")
        x.record_stream(stream)
        end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) >= 0
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cuda.matmul.allow_tf32 = False
    assert triton.runtime.driver.active.get_current_target().arch == 90
    assert triton.runtime.driver.active.get_active_torch_device() == x.device
    with pytest.raises(UnsupportedOnDevice):
        torch.cuda.CUDAGraph()


def test_another_gpu_can_be_emulated():
    from kerneldojo.devices.specs import gpu

    interpreter.use_gpu(gpu("a100"))
    try:
        assert torch.cuda.get_device_properties(0).multi_processor_count == 108
        assert torch.cuda.get_device_capability() == (8, 0)
    finally:
        interpreter.use_gpu(gpu("h100"))


def test_metering_under_an_arena_shared_by_all_inputs():
    arena = torch.empty(1 << 29, dtype=torch.uint8)
    x = arena[: 4 * 64].view(torch.float32)
    y = arena[4096 : 4096 + 4 * 64].view(torch.float32)
    x.fill_(1)
    y.fill_(2)
    o = torch.empty(64)
    with Meter() as meter:
        add[(1,)](x, y, o, 64, B=64)
    assert o.eq(3).all()
    assert [item.num_bytes for item in meter.works[0].reads] == [256, 256]
