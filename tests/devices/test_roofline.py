"""The model orders implementations as a GPU does."""

import math

import pytest

from kerneldojo.devices.roofline import compile_baseline, physical_limit, price
from kerneldojo.devices.specs import GPUS, gpu
from kerneldojo.devices.work import Compiled, Flops, Traffic, Work
from kerneldojo.schema import Roofline

H100 = gpu("h100")
MIB = 1 << 20


def traffic(*pairs):
    return tuple(Traffic(storage=storage, num_bytes=count) for storage, count in pairs)


def elementwise(source, target, num_bytes, name="aten::relu", **more):
    return Work(
        own=False,
        name=name,
        pattern="elementwise",
        reads=traffic((source, num_bytes)),
        writes=traffic((target, num_bytes)),
        accessed_bytes=2 * num_bytes,
        arithmetic=num_bytes / 4,
        **more,
    )


def own_elementwise(num_bytes, programs, num_warps=4, arithmetic=1.0):
    return Work(
        own=True,
        name="kernel",
        num_programs=programs,
        num_warps=num_warps,
        reads=traffic((0, num_bytes)),
        writes=traffic((1, num_bytes)),
        accessed_bytes=2 * num_bytes,
        arithmetic=arithmetic * num_bytes / 4,
    )


def own_product(n, tile, itemsize=2, precision="fp16", num_warps=4):
    """A square product with square tiles and an inner step of 32, as a Triton kernel does it."""
    rereads = n // tile
    return Work(
        own=True,
        name="product",
        num_programs=rereads**2,
        num_warps=num_warps,
        reads=traffic((0, itemsize * n * n), (1, itemsize * n * n)),
        writes=traffic((2, itemsize * n * n)),
        accessed_bytes=itemsize * n * n * (2 * rereads + 1),
        products=(Flops(precision=precision, flops=2.0 * n**3),),
        operand_bytes=2 * itemsize * n * n * rereads,
    )


def library_product(n, itemsize=2, precision="fp16"):
    return Work(
        own=False,
        name="aten::mm",
        pattern="product",
        reads=traffic((0, itemsize * n * n), (1, itemsize * n * n)),
        writes=traffic((2, itemsize * n * n)),
        accessed_bytes=3 * itemsize * n * n,
        products=(Flops(precision=precision, flops=2.0 * n**3),),
    )


def ms(*works, **more):
    return price(works, H100, **more).total_ms


@pytest.mark.parametrize("num_bytes", [4096, MIB, 64 * MIB])
def test_fusing_two_elementwise_operations_is_faster(num_bytes):
    apart = ms(elementwise(0, 1, num_bytes), elementwise(1, 2, num_bytes))
    fused = ms(own_elementwise(num_bytes, max(1, num_bytes // 4096), arithmetic=2))
    assert fused < apart
    if num_bytes >= 64 * MIB:
        assert 1.5 < apart / fused < 2.5


def test_an_elementwise_kernel_of_a_thread_an_element_costs_what_the_librarys_does_however_many_inputs_it_reads():
    count, inputs = 2048, ((0, 4 * 2048), (1, 4 * 2048))
    moved = {"reads": traffic(*inputs), "writes": traffic((2, 4 * count)), "accessed_bytes": 12 * count}
    own = Work(own=True, name="kernel", num_programs=count // 512, num_warps=4, arithmetic=count, **moved)
    library = Work(own=False, name="aten::add", pattern="elementwise", arithmetic=count, **moved)
    assert price([own], H100).total_ms == price([library], H100).total_ms


def test_a_full_grid_is_far_faster_than_one_program():
    full, one = (ms(own_elementwise(64 * MIB, programs)) for programs in (16384, 1))
    assert one > 30 * full


def test_time_falls_with_the_grid_until_the_gpu_is_full():
    times = [ms(own_elementwise(64 * MIB, programs)) for programs in (1, 8, 64, 132, 528, 2112)]
    assert times == sorted(times, reverse=True)


def test_a_bigger_tile_of_a_product_moves_fewer_bytes_and_takes_less_time():
    small, medium, big = (own_product(4096, tile) for tile in (16, 32, 128))
    assert small.accessed_bytes > medium.accessed_bytes > big.accessed_bytes
    moved = [price([work], H100).dram_bytes for work in (small, medium, big)]
    assert moved == sorted(moved, reverse=True)
    assert ms(small) > ms(medium) > ms(big)


@pytest.mark.parametrize("n", [128, 256, 512, 1024, 2048, 4096])
@pytest.mark.parametrize(("precision", "itemsize"), [("fp16", 2), ("tf32", 4), ("fp32", 4)])
@pytest.mark.parametrize("name", sorted(GPUS))
def test_a_tiled_product_reaches_a_third_to_all_of_the_librarys_rate(name, n, precision, itemsize):
    library = price([library_product(n, itemsize, precision)], gpu(name)).total_ms
    own = min(
        price([own_product(n, tile, itemsize, precision, warps)], gpu(name)).total_ms
        for tile, warps in ((16, 4), (32, 4), (64, 4), (128, 8), (256, 8))
        if tile <= n
    )
    assert 0.3 <= library / own <= 1.0


def test_a_product_without_tensor_cores_is_slower():
    assert ms(own_product(4096, 128, 4, "fp32")) > 2 * ms(own_product(4096, 128, 4, "tf32"))


def test_scattered_access_is_slower():
    orderly = own_elementwise(64 * MIB, 16384)
    scattered = orderly.model_copy(update={"accessed_bytes": 8 * orderly.accessed_bytes})
    assert ms(scattered) > 2 * ms(orderly)


def test_registers_and_shared_memory_lower_occupancy():
    work = own_elementwise(64 * MIB, 16384).model_copy(update={"specialization": "k"})

    def built(registers, shared):
        return [
            Compiled(
                specialization="k", kernel="k", cubin_sha256="0", registers=registers, shared_bytes=shared, num_warps=4
            )
        ]

    light, heavy = ms(work, compiled=built(32, 0)), ms(work, compiled=built(255, 0))
    assert light < heavy
    assert light < ms(work, compiled=built(32, 200 << 10))


def test_small_problems_are_priced_by_their_launches():
    small = price([elementwise(0, 1, 4096)] * 4, H100)
    assert small.launches == 4
    assert 0.7 * small.total_ms < 4 * 3e-3 < small.total_ms


def test_pricing_is_deterministic_and_adds_up():
    works = [own_product(1024, 64), elementwise(2, 3, MIB), elementwise(3, 4, MIB)]
    first, second = price(works, H100), price(works, H100)
    assert first == second
    assert math.isclose(sum(kernel.device_ms for kernel in first.kernels), first.total_ms)
    assert first.coverage is not None
    assert 0 < first.coverage < 1
    assert [kernel.own for kernel in first.kernels] == [True, False]
    assert price([], H100).coverage is None


def test_compile_baseline_fuses_chains_and_only_chains():
    chain = [elementwise(0, 1, 64 * MIB), elementwise(1, 2, 64 * MIB), elementwise(2, 3, 64 * MIB)]
    (fused,) = compile_baseline(chain)
    assert fused.read_bytes == 64 * MIB
    assert fused.written_bytes == 64 * MIB
    assert fused.arithmetic == sum(work.arithmetic for work in chain)
    product = library_product(1024).model_copy(update={"reads": traffic((7, MIB)), "writes": traffic((8, MIB))})
    mixed = compile_baseline([*chain, product, elementwise(2, 5, MIB), elementwise(3, 6, MIB)])
    assert [len(work.name.split("+")) for work in mixed] == [3, 1, 2]
    assert [item.storage for item in mixed[0].writes] == [2, 3], "what is read later is written"
    assert ms(*chain, baseline="compile") < ms(*chain)


def test_physical_limit_is_below_every_price():
    work = own_elementwise(64 * MIB, 16384)
    limit = physical_limit(128 * MIB, 0.0, "fp32", H100)
    assert isinstance(limit, Roofline)
    assert limit.bound == "memory"
    assert 0.7 * ms(work) < limit.limit_ms < ms(work)
    flops = 2.0 * 4096**3
    compute = physical_limit(3 * 2 * 4096**2, flops, "fp16", H100)
    assert compute.bound == "compute"
    assert compute.limit_ms < ms(library_product(4096))


def test_specs_are_plausible_and_named():
    assert {"h100", "h200", "a100", "l40s", "b200", "rtx4090"} <= set(GPUS)
    assert gpu("RTX-4090") is gpu("rtx4090")
    with pytest.raises(ValueError, match=r"unknown GPU 'tpu'; known: .*h100"):
        gpu("tpu")
    for spec in GPUS.values():
        rates = spec.peak_flops
        assert rates["fp64"] <= rates["fp32"] <= rates["tf32"] <= rates["fp16"] <= rates["fp8"]
        assert spec.memory_bandwidth < spec.l2_bandwidth < spec.shared_bandwidth
        assert spec.shared_bytes_per_block < spec.shared_bytes_per_multiprocessor
        assert spec.sources


def test_a_launch_that_claims_neither_programs_nor_warps_has_a_price():
    claims = [own_elementwise(1 << 16, programs=0), own_elementwise(1 << 16, programs=64, num_warps=0)]
    for claim in claims:
        assert ms(claim) >= ms(own_elementwise(1 << 16, programs=64))
