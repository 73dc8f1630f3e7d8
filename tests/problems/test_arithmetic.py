"""An answer's arithmetic is told by its errors, where tolerances are too wide to tell it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kerneldojo.problems.arithmetic import SAMPLED, error_moments, is_coarse, is_coarser
from kerneldojo.problems.precision import tf32_emulation

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

TAILS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "product": lambda y: y,
    "mean of gates": lambda y: torch.sigmoid(y).mean(dim=1),
    "logsumexp": lambda y: torch.logsumexp(y, dim=1),
    "softmax": lambda y: torch.softmax(y, dim=1),
    "transposed": lambda y: y.t(),
}


SIGNED = ("product", "mean of gates", "softmax", "transposed")
"""Behind which operands that were rounded are told from float32's."""


def in_blocks(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The same product in float32, summed in another order."""
    total = torch.zeros(x.shape[0], w.shape[0])
    for start in range(0, x.shape[1], 32):
        total += x[:, start : start + 32] @ w[:, start : start + 32].t()
    return total


def found(
    tail: Callable[[torch.Tensor], torch.Tensor], kind: str, seed: int, *, has_truth: bool = True
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    x, w = (torch.randn(96, 512, generator=generator) for _ in range(2))
    w /= 16
    truth, native = tail(x.double() @ w.double().t()), tail(x @ w.t())
    with tf32_emulation():
        coarse = tail(x @ w.t())
    rounded = [(one.view(torch.int32) + 0x1000 & ~0x1FFF).view(torch.float32) for one in (x, w)]
    got = {"float32": tail(in_blocks(x, w)), "tf32": coarse, "rounded": tail(rounded[0] @ rounded[1].t())}[kind]
    errors = error_moments(truth if has_truth else None, native, coarse, got)
    assert errors is not None
    return errors


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("kind", ["float32", "tf32", "rounded"])
@pytest.mark.parametrize("has_truth", [True, False], ids=["", "without the truth"])
def test_products_are_told_by_their_operands_whatever_is_done_to_them(tail: str, kind: str, has_truth: bool) -> None:
    """Another order of summation is float32's all the same; TF32 may cut its operands, or round them."""
    seen = [found(TAILS[tail], kind, seed, has_truth=has_truth) for seed in range(7)]
    assert is_coarse(seen) is (kind == "tf32" or (kind == "rounded" and tail in SIGNED))
    assert any(map(is_coarse, ([one] for one in seen))) <= is_coarse(seen)


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("then", ["float32", "tf32", "rounded"])
@pytest.mark.parametrize("before", ["float32", "tf32", "rounded"])
def test_who_changes_from_float32_to_tf32_is_told_by_a_single_answer(tail: str, before: str, then: str) -> None:
    rounds = [found(TAILS[tail], before, seed) for seed in range(7)]
    if before == "rounded" and tail not in SIGNED:
        return  # Nobody knows that it was not in float32.
    has_changed = before == "float32" and then != "float32"
    for seed in (7, 8, 9):
        one = [found(TAILS[tail], then, seed)]
        assert is_coarser(one, rounds, is_told=True) is has_changed
        assert is_coarser(one, rounds) <= has_changed
        assert then != "tf32" or is_coarser(one, rounds) == has_changed, "operands that are cut need no tolerance"
    assert not is_coarser([], rounds) and not is_coarser(rounds, [])


def test_a_mean_of_many_gates_in_one_order_is_float32s() -> None:
    """One thread a row: right, and in float32, however poor its order is."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(64, 1024, generator=generator)
    w = torch.randn(4096, 1024, generator=generator) / 32
    native, truth = (torch.sigmoid(a @ b.t()).mean(dim=1) for a, b in ((x, w), (x.double(), w.double())))
    with tf32_emulation():
        coarse = torch.sigmoid(x @ w.t()).mean(dim=1)
    total = torch.zeros(64)
    for gates in torch.sigmoid(x @ w.t()).unbind(dim=1):
        total += gates
    errors = error_moments(truth, native, coarse, total / 4096)
    assert errors is not None and not is_coarse([errors] * 7)


def test_nor_is_a_long_product_of_positive_numbers_in_one_order_coarse() -> None:
    """A thread an element, one term after the other: which errs more than a library that sums in blocks."""
    generator = torch.Generator().manual_seed(2)
    x, w = torch.rand(8, 1 << 15, generator=generator), torch.rand(16, 1 << 15, generator=generator)
    native, truth = x @ w.t(), x.double() @ w.double().t()
    with tf32_emulation():
        coarse = x @ w.t()
    total = torch.zeros(8, 16)
    for a, b in zip(x.unbind(dim=1), w.unbind(dim=1), strict=True):
        total += torch.outer(a, b)
    errors = error_moments(truth, native, coarse, total)
    assert errors is not None and not is_coarse([errors] * 7)
    assert float(errors[0]) > 100 * float(errors[1]), "ten times as large as the library's"


def test_where_both_err_alike_nobody_is_said_to_be_coarse() -> None:
    truth = torch.randn(1000, dtype=torch.float64)
    native, coarse, got = (truth.float() * (1 + scale * torch.randn(1000)) for scale in (1e-5, 1e-4, 1e-3))
    errors = error_moments(truth, native, coarse, got)
    assert errors is not None and not is_coarse([errors])


def test_a_native_answer_that_is_exact_is_no_reason_to_call_another_coarse() -> None:
    """Small whole numbers: what errs by a rounding is float32's."""
    truth = torch.arange(1.0, 513.0, dtype=torch.float64)
    native, coarse = truth.float(), truth.float() * (1 + 1e-3)
    for scale, expected in ((6e-8, False), (1e-3, True)):
        errors = error_moments(truth, native, coarse, (truth * (1 + scale)).float())
        assert errors is not None and is_coarse([errors]) is expected


@pytest.mark.parametrize("shape", [(3000, 1500), (3, 50, 300, 100)])
@pytest.mark.parametrize("is_coarser_there", [False, True])
def test_a_large_answer_that_lies_turned_round_is_looked_at(shape: tuple[int, ...], is_coarser_there: bool) -> None:
    """Else whoever returns such a one would be timed against whatever the tolerances happen to tell."""
    truth = torch.randn(shape, dtype=torch.float64)
    native, coarse = ((truth * (1 + scale * torch.randn(shape))).float() for scale in (1e-7, 3e-4))
    got = coarse if is_coarser_there else native
    order = tuple(range(len(shape)))[::-1]
    errors = error_moments(truth, native, coarse, got.permute(order).contiguous().permute(order))
    assert errors is not None and is_coarse([errors]) is is_coarser_there


def test_nobody_knows_at_which_elements_are_looked() -> None:
    truth = torch.randn(1 << 20, dtype=torch.float64)
    native, coarse = ((truth * (1 + scale * torch.randn(1 << 20))).float() for scale in (1e-7, 3e-4))
    step = ((1 << 20) // SAMPLED) | 1
    got = torch.where(torch.arange(1 << 20) % step == 0, native, coarse)
    found = [error_moments(truth, native, coarse, got) for _ in range(20)]
    assert any(errors is not None and is_coarse([errors]) for errors in found)


def test_nothing_is_known_of_what_nobody_looked_at() -> None:
    nothing = torch.zeros(0)
    assert error_moments(nothing.double(), nothing, nothing, nothing) is None
    single = torch.ones(1)
    assert error_moments(single.double(), single, single, single) is None
    assert not is_coarse([])


@settings(deadline=None, max_examples=50)
@given(st.sampled_from(["float32", "tf32"]), st.floats(-20, 20), st.sampled_from([torch.inf, -torch.inf, torch.nan]))
def test_neither_the_size_of_numbers_nor_what_is_none_matters(kind: str, exponent: float, odd: float) -> None:
    truth = torch.randn(4096, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 10.0**exponent
    native, coarse = (truth * (1 + scale * torch.randn(4096)) for scale in (1e-7, 1e-4))
    got = (native if kind == "float32" else coarse).clone()
    for one in (truth, native, coarse, got):
        one[7] = odd
    errors = error_moments(truth, native, coarse, got)
    assert errors is not None and is_coarse([errors]) is (kind == "tf32")
