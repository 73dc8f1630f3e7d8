from __future__ import annotations

import math

import pytest
import torch

from kerneldojo.problems import agreement, pieces, trivial


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven elements at a time."""
    monkeypatch.setattr(pieces.pieces, "__kwdefaults__", {"size": 7})


def test_pieces_are_all_elements_in_order(small: None) -> None:
    x, y = torch.arange(30).reshape(5, 6).t(), torch.rand(30)
    parts = list(pieces.pieces(x, y))
    assert [len(part[0]) for part in parts] == [7, 7, 7, 7, 2]
    assert torch.equal(torch.cat([part[0] for part in parts]), x.reshape(-1))
    assert torch.equal(torch.cat([part[1] for part in parts]), y)
    assert list(pieces.pieces(torch.empty(0))) == []


@pytest.mark.parametrize("shape", [(30,), (5, 6), (2, 3, 5), (1, 30), (1, 1, 40), (40, 1), (3, 0, 4), ()])
@pytest.mark.parametrize("size", [1, 4, 7, 12, 100])
def test_slabs_are_views_of_all_elements_and_keep_rows_that_fit(shape: tuple[int, ...], size: int) -> None:
    x = torch.arange(math.prod(shape)).reshape(shape)
    found = list(pieces.slabs(x, size))
    assert all(slab.numel() <= size or not slab.dim() for slab in found)
    assert all(slab.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for slab in found)
    assert torch.equal(torch.cat([slab.reshape(-1) for slab in found]), x.reshape(-1))
    if shape and shape[-1] <= size:
        assert {slab.shape[-1] for slab in found} == {shape[-1]}
    assert [slab.shape for slab in pieces.slabs(torch.empty(shape), size)] == [slab.shape for slab in found]


def test_zeros_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randint(0, 3, (50, 7))
    monkeypatch.setattr(pieces.slabs, "__defaults__", (20,))
    assert pieces.num_zeros(x) == int((x == 0).sum())
    assert pieces.num_zeros(torch.empty(3, 0)) == 0


def test_what_is_done_piece_by_piece_is_what_would_be_done_at_once(small: None) -> None:
    torch.manual_seed(0)
    natives = [torch.randn(4, 5) + 3 for _ in range(3)]
    natives[0][1, 1] = float("inf")
    assert pieces.sum_of_squares(natives[1]) == pytest.approx(float(natives[1].double().square().sum()))
    answers = dict(trivial.answers(natives, [[], [], []]))
    assert torch.allclose(answers["the mean of other seeds"](0), (natives[1] + natives[2]) / 2)
    finite = torch.cat([one[one.isfinite()] for one in natives]).double()
    constants = [made(0)[0, 0].item() for name, made in trivial.answers(natives, [[], [], []]) if name == "a constant"]
    wanted = sorted({float(finite.mean()), float(finite.median()), float((finite.min() + finite.max()) / 2)})
    assert constants == pytest.approx(wanted)


def test_runs_agree_piece_by_piece(small: None) -> None:
    x = torch.randn(100)
    y = x + 1e-3 * torch.randn(100)
    assert agreement.same([x], [y], 1e-2)
    assert not agreement.same([x], [y], 1e-4)
    y = x.clone()
    y[50] = float("nan")
    assert agreement.same([x], [y], 1e-2), "one in a hundred"
    y[51:60] = float("nan")
    assert not agreement.same([x], [y], 1e-2)
    assert agreement.same([torch.arange(100)], [torch.arange(100)], 0.0)
    assert not agreement.same([torch.arange(100)], [torch.zeros(100, dtype=torch.int64)], 0.5)
    assert agreement.scales_along([x], [x * 2.0**5]) == agreement.scales_along([x[:1]], [x[:1] * 2.0**5])
