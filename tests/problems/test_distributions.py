from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kerneldojo.problems import distributions
from kerneldojo.problems.distributions import FILLING, NAMES, OFFSET, changes, transform
from kerneldojo.problems.pieces import pieces

PIECE = 1 << 16


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    seed=st.integers(0, 99),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    kind=st.sampled_from(["plain", "transposed", "sliced", "expanded"]),
)
def test_shape_strides_and_type_are_kept_and_inputs_left_alone(name, seed, dtype, kind) -> None:
    torch.manual_seed(seed)
    base = torch.rand(24, 32).to(dtype)
    x = {
        "plain": base,
        "transposed": base.t(),
        "sliced": base[:, ::2],
        "expanded": base[:, :1].expand(24, 7),
    }[kind]
    before = x.clone()
    y = transform([x], name, seed)[0]
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
    assert torch.equal(x, before)
    assert y.stride() == x.stride()
    again = transform([x], name, seed)[0]
    assert torch.equal(y, again)
    assert changes([x], name) == (not torch.equal(x, y))


def test_signed_centres_what_is_positive_and_leaves_the_rest() -> None:
    positive, signed = torch.rand(64, 64), torch.randn(64, 64)
    new, same = transform((positive, signed), "signed", 0)
    assert same is signed
    assert abs(float(new.mean())) < 1e-4
    assert float(new.min()) < -0.9
    assert float(new.max()) < 1.1


def test_structure_is_kept() -> None:
    torch.manual_seed(0)
    kept = {
        "integers": torch.randint(0, 9, (64,)),
        "flags": torch.rand(64, 64) < 0.5,
        "labels": torch.randint(0, 2, (64, 64)).float() * 2 - 1,
        "one hot": torch.nn.functional.one_hot(torch.randint(0, 30, (64,)), 30).float(),
        "probabilities": torch.softmax(torch.randn(64, 30), -1),
        "constant": torch.full((64, 64), 0.5),
        "scalar": torch.tensor(3.0),
    }
    for name in NAMES:
        for what, x in kept.items():
            is_filled = name in FILLING and what in ("constant", "scalar")
            assert (transform([x], name, 1)[0] is x) is not is_filled, what
    triangular = torch.rand(48, 48).tril()
    symmetric = torch.rand(48, 48)
    symmetric = symmetric + symmetric.t()
    increasing = torch.rand(8, 64).cumsum(-1)
    for name in NAMES:
        t, s, i = transform([triangular, symmetric, increasing], name, 1)
        assert torch.equal(t, t.tril())
        assert torch.equal(s, s.t())
        assert bool((i.diff(dim=-1) >= 0).all())


def test_offset_and_heavy_are_what_they_say() -> None:
    torch.manual_seed(0)
    x = torch.randn(128, 128)
    assert float(transform([x], "offset", 0)[0].mean()) == pytest.approx(64, rel=0.05)
    heavy = transform([x], "heavy", 0)[0]
    for end, own in ((heavy[-1], x[-1]), (heavy[:, -1], x[:, -1])):
        assert torch.equal(end, 100.0 * own), "a mask that ends one too early leaves out the largest"
    assert torch.equal(heavy.sign(), x.sign())
    assert float(heavy.abs().max() / heavy.abs().median()) > 4 * float(x.abs().max() / x.abs().median())


def test_inputs_of_one_sign_are_some_way_from_zero_and_take_turns() -> None:
    torch.manual_seed(0)
    x, y, index = torch.randn(64, 64), torch.rand(64, 64), torch.arange(64)
    x[0] = 0.0
    for name, signs in (("negative", (-1.0, -1.0)), ("opposed", (1.0, -1.0))):
        new_x, kept, new_y = transform((x, index, y), name, 0)
        assert kept is index
        assert torch.allclose(new_x[1:], signs[0] * (x.abs() + x.std())[1:], atol=1e-5)
        assert torch.equal(new_x[0], x[0])
        assert torch.allclose(new_y, signs[1] * (y + y.std()), atol=1e-5)


def test_numbers_come_nearer_to_zero_by_what_nobody_knows() -> None:
    x = torch.rand(32, 32)
    same, slope, count, flag = transform([x, -0.25, 3, True], "scalars", 7)
    assert same is x
    assert -0.25 * 0.95 <= slope <= -0.25 * 0.8
    assert (count, flag) == (3, True)
    assert slope != transform([x, -0.25], "scalars", 8)[1]
    assert changes([x, -0.25], "scalars")
    assert not changes([x, 0.0, 3], "scalars")


def test_scalars_and_nesting_pass_through() -> None:
    values = {"a": [torch.rand(32, 32), 3, None], "b": (0.5, "x")}
    changed = transform(values, "signed", 0)
    assert changed["b"] == values["b"]
    assert changed["a"][1:] == [3, None]
    with pytest.raises(ValueError, match="unknown distribution"):
        transform(values, "odd", 0)


def test_scaled_leaves_the_range_of_half_precision_exactly() -> None:
    x, index = torch.randn(64), torch.arange(64)
    changed = transform([x, index], "scaled", 0)
    assert torch.equal(changed[0] / 2.0**18, x)
    assert not bool(changed[0].half().isfinite().all())
    assert changed[1] is index


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_moments_of_parts_are_those_of_the_whole(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributions, "pieces", partial(pieces, size=7))
    x = (torch.randn(9, 11, dtype=torch.float64) * torch.logspace(-2, 1, 11) + 3).to(dtype)
    mean, deviation = distributions._moments(x)
    assert (mean, deviation) == pytest.approx((float(x.double().mean()), float(x.double().std())), rel=1e-6)


def test_what_is_longer_than_a_piece_is_changed_in_pieces_as_if_it_were_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributions, "pieces", partial(pieces, size=PIECE))
    x = 0.1 + torch.rand(3, PIECE // 2, generator=torch.Generator().manual_seed(1))
    signed = transform(x, "signed", 1)
    assert torch.allclose(signed, (x - x.mean()) * 2, atol=1e-5)
    assert torch.allclose(transform(x, "offset", 1), x + OFFSET * x.std(), rtol=1e-4)
    factors = transform(x, "heavy", 1) / x
    assert not torch.equal(factors.view(-1)[:1000], factors.view(-1)[PIECE : PIECE + 1000]), "each piece has its own"
    assert torch.equal(transform(x, "heavy", 1), transform(x, "heavy", 1))
