"""Bytes that no counted work wrote are told from those that it wrote, wherever they come from."""

import ctypes
import threading

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from torch.utils._python_dispatch import _disable_current_modes

from kerneldojo.devices.interpreter import Ledger, Meter
from kerneldojo.devices.interpreter.ledger import SMALL_BYTES, checksum

N = 1000


@triton.jit
def double(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def first(o):
    tl.store(o, 1.0)


@triton.jit
def double_at(table, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(table).to(tl.pointer_type(tl.float32))
    o = tl.load(table + 1).to(tl.pointer_type(tl.float32))
    tl.store(o + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


def doubled(x):
    o = torch.empty_like(x)
    double[(triton.cdiv(x.numel(), 256),)](x, o, x.numel(), B=256)
    return o


def in_numpy(tensor):
    """A tensor's memory as NumPy's, which torch does not hear of."""
    raw = (ctypes.c_float * tensor.numel()).from_address(tensor.data_ptr())
    return np.frombuffer(raw, dtype=np.float32)


def outside_bytes(forward, x, ledger=None, given=()):
    """What a call of `forward` got from outside, in bytes."""
    ledger = ledger or Ledger()
    ledger.open([x, *given])
    with torch.no_grad(), Meter(ledger) as meter:
        output = forward(x)
    meter.returned([output])
    assert any(work.own for work in meter.works)
    return sum(work.read_bytes for work in meter.works if work.pattern == "outside")


def from_numpy(x):
    return doubled(torch.from_numpy(x.numpy() + 1))


def filled_from_numpy(x):
    y = torch.empty_like(x)
    in_numpy(y)[...] = in_numpy(x) + 1
    return doubled(y)


def copied_from_numpy(x):
    return doubled(torch.from_numpy(x.numpy() + 1).clone())


def from_a_list(x):
    return doubled(torch.tensor((x.numpy() + 1).tolist()))


def behind_the_modes(x):
    with _disable_current_modes():
        y = x + 1
    return doubled(y)


def in_a_thread(x):
    found = []
    thread = threading.Thread(target=lambda: found.append(x + 1))
    thread.start()
    thread.join()
    return doubled(found[0])


def over_the_inputs(x):
    own = in_numpy(x)
    before = own.copy()
    own += 1
    y = doubled(x)
    own[...] = before
    return y


def after_the_kernel(x):
    y = doubled(x)
    in_numpy(y)[...] += 1
    return y


def with_one_element_written_by_a_kernel(x):
    y = torch.from_numpy(x.numpy() + 1)
    first[(1,)](y)
    return doubled(y)


def by_a_pointer(x):
    y, o = x.numpy() + 1, torch.empty_like(x)
    double_at[(4,)](torch.tensor([y.ctypes.data, o.data_ptr()]), N, B=256)
    return o


@pytest.mark.parametrize(
    "forward",
    [
        from_numpy,
        filled_from_numpy,
        copied_from_numpy,
        from_a_list,
        behind_the_modes,
        in_a_thread,
        over_the_inputs,
        after_the_kernel,
        by_a_pointer,
    ],
)
def test_what_something_else_computed_is_seen_where_counted_work_reads_it(forward):
    assert outside_bytes(forward, torch.randn(N)) >= 4 * N


def test_a_kernel_that_writes_one_element_does_not_account_for_the_others():
    assert outside_bytes(with_one_element_written_by_a_kernel, torch.randn(N)) >= 4 * N


WEIGHTS = torch.randn(N)


def chain(x):
    y = torch.zeros_like(x)
    y += doubled(x)[:N].view(10, -1).reshape(-1) * WEIGHTS
    y[0] = 3.0
    return doubled(torch.nn.functional.batch_norm(y.view(10, -1), None, None, training=True).view(-1))


def with_addresses(x):
    o = torch.empty_like(x)
    double_at[(4,)](torch.tensor([x.data_ptr(), o.data_ptr()]), N, B=256)
    return o


def with_a_constant(x):
    return doubled(x * torch.tensor([0.5, 0.25, 2.0, 1.0]).repeat(N // 4))


@pytest.mark.parametrize("forward", [doubled, chain, with_addresses])
def test_counted_work_is_accounted_for(forward):
    assert outside_bytes(forward, torch.randn(N), given=[WEIGHTS]) == 0


def test_constants_are_from_outside_in_the_first_call_only():
    ledger = Ledger()
    assert outside_bytes(with_a_constant, torch.randn(N), ledger) == 16
    assert outside_bytes(with_a_constant, torch.randn(N), ledger) == 0
    assert outside_bytes(from_numpy, torch.randn(N), ledger) >= 4 * N
    assert outside_bytes(from_numpy, torch.randn(N), ledger) >= 4 * N


@torch.library.custom_op("kerneldojo_test::honest", mutates_args=())
def honest(x: torch.Tensor) -> torch.Tensor:
    return doubled(x + 1)


@torch.library.custom_op("kerneldojo_test::numpy", mutates_args=())
def numpy_inside(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy() + 1)


@torch.library.triton_op("kerneldojo_test::triton", mutates_args=())
def triton_op(x: torch.Tensor) -> torch.Tensor:
    o = torch.empty_like(x)
    torch.library.wrap_triton(double)[(4,)](x, o, N, B=256)
    return o


def test_an_operator_that_a_source_defines_costs_what_it_does_inside():
    for operator, names in ((honest, ["aten::add", "double"]), (triton_op, ["double"])):
        ledger, x = Ledger(), torch.randn(N)
        ledger.open([x])
        with torch.no_grad(), Meter(ledger) as meter:
            y = operator(x)
        meter.returned([y])
        assert [work.name for work in meter.works] == names


def test_numpy_in_an_operator_of_a_source_is_seen():
    assert outside_bytes(lambda x: doubled(numpy_inside(x)), torch.randn(N)) >= 4 * N


def test_numpy_in_the_librarys_place_is_seen():
    library = torch.library.Library("aten", "IMPL")
    library.impl("digamma", lambda x: torch.from_numpy(x.numpy() + 1), "CPU")
    try:
        assert outside_bytes(lambda x: doubled(torch.digamma(x)), torch.randn(N)) >= 4 * N
    finally:
        library._destroy()
    assert outside_bytes(lambda x: doubled(torch.digamma(x)), torch.rand(N)) == 0


def test_a_large_buffers_checksum_tells_places():
    values = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
    assert values.nbytes > SMALL_BYTES
    assert checksum(values) == checksum(values.copy())
    assert checksum(values) != checksum(np.ascontiguousarray(values.T))
    assert checksum(values) != checksum(np.ascontiguousarray(values[::-1]))
