from __future__ import annotations

import pytest
import torch

from kerneldojo.problems import influence
from kerneldojo.problems.footprint import Footprint
from kerneldojo.problems.influence import needed_bytes
from kerneldojo.problems.precision import float64_oracle, tf32_emulation


def _needed(function, *inputs) -> list[int]:
    return needed_bytes(lambda xs: [function(*xs)], list(inputs), seed=0)


def test_everything_that_matters_is_counted_and_nothing_else() -> None:
    x, y = torch.randn(64, 64), torch.randn(64, 64)
    assert _needed(lambda x, y: x + 0 * y.detach(), x, y) == [x.nbytes, 0]
    assert _needed(lambda x, y: x.tril() @ y, x, y)[1] == y.nbytes
    lower = _needed(lambda x: x.tril(), x)[0]
    assert x.nbytes / 2 < lower < 0.65 * x.nbytes
    half = _needed(lambda x: x[:32].tanh(), x)[0]
    assert half == x.nbytes // 2


def test_what_a_maximum_compares_is_needed_though_it_has_no_gradient() -> None:
    x = torch.randn(64, 256)
    for function in (lambda x: x.amax(1), lambda x: x.argmax(1), lambda x: x > 0):
        assert 0.8 * x.nbytes < _needed(function, x)[0] <= x.nbytes


def test_sums_of_millions_show_a_single_sector() -> None:
    x = torch.randint(-5, 5, (1 << 20,))
    assert _needed(lambda x: x.float().sum(), x)[0] > 0.8 * x.nbytes


def test_rarely_read_tables_are_not_counted_in_full() -> None:
    table = torch.randn(4096, 64)
    rows = torch.randint(0, 4096, (128,))
    found = _needed(lambda table, rows: table[rows], table, rows)
    assert found[0] <= 128 * 64 * 4
    assert found[1] > 0


def test_strided_inputs_are_followed_in_memory_order() -> None:
    x = torch.randn(64, 128).t()
    assert _needed(lambda x: x[:64].tanh(), x)[0] == x.nbytes // 2
    gap = torch.randn(64, 2, 32)[:, 0]
    assert _needed(lambda x: x.tanh(), gap)[0] == gap.numel() * 4


def test_of_large_inputs_a_sample_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no room for gradients: seven eighths of what is read, half of it where half is read."""
    monkeypatch.setattr(influence, "LARGE_BYTES", 1 << 12)
    x, y = torch.randn(64, 64), torch.randn(64, 64)
    assert _needed(lambda x, y: x.relu() + 0 * y.detach(), x + 10, y) == [x.nbytes * 7 // 8, 0]
    assert 0.1 * x.nbytes < _needed(lambda x: x[:32].tanh(), x / 100)[0] < 0.8 * x.nbytes
    assert _needed(lambda x: x.argmax(1), x)[0] > 0.6 * x.nbytes
    assert _needed(lambda x: x.neg_(), x)[0] > 0.8 * x.nbytes
    gap = torch.randn(64, 2, 32)[:, 0]
    assert 0 < _needed(lambda x: x.tanh(), gap / 100)[0] <= gap.numel() * 4


def test_no_evidence_from_what_does_not_repeat() -> None:
    assert _needed(lambda x: x + torch.rand(1), torch.randn(64)) == [0]


def test_footprint_sees_peak_and_longest_sum() -> None:
    x, w = torch.randn(32, 100), torch.randn(100, 50)
    with torch.no_grad(), Footprint() as seen:
        y = torch.relu(x @ w)
        del y
        z = x.sum(0)
    assert seen.reduction_length == 100
    assert seen.peak_bytes == 2 * 32 * 50 * 4
    assert z.shape == (100,)
    with torch.no_grad(), Footprint() as seen:
        torch.conv2d(torch.randn(1, 3, 8, 8), torch.randn(5, 3, 3, 3))
    assert seen.reduction_length == 27
    with torch.no_grad(), Footprint() as seen:
        torch.softmax(x, 0)
    assert seen.reduction_length == 32


def test_float64_oracle_widens_what_the_module_narrows() -> None:
    x = torch.randn(16, 16, dtype=torch.float64)
    attribute = torch.randn(16, 16)
    with float64_oracle():
        y = (x.half() @ attribute + torch.ones(16, dtype=torch.float32)).float()
    assert y.dtype == torch.float64
    assert torch.equal(y, x @ attribute.double() + 1)
    assert torch.get_default_dtype() == torch.float32


def test_tf32_reaches_every_kind_of_product() -> None:
    q, k, v = torch.randn(3, 1, 2, 8, 16).unbind(0)
    image, filters = torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3)
    cases = [
        lambda: q @ k.mT,
        lambda: torch.nn.functional.linear(q, k[0, 0], k[0, 0, :, 0]),
        lambda: torch.einsum("bhld,bhmd->bhlm", q, k),
        lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v),
        lambda: torch.conv2d(image, filters),
        lambda: q[0, 0] @ k[0, 0, 0],
    ]
    for case in cases:
        exact = case()
        with tf32_emulation():
            cut = case()
        error = float((cut - exact).norm() / exact.norm())
        assert 1e-5 < error < 1e-2
    with tf32_emulation():
        assert torch.equal(torch.exp(q), torch.exp(q))
