"""Inputs that hold one value alone: who takes them for given is found out."""

from __future__ import annotations

import pytest
import torch

from kerneldojo.problems.distributions import FILLING, changes, holds_one_value, transform


@pytest.mark.parametrize("name", FILLING)
@pytest.mark.parametrize("value", [1.0, 0.0, -3.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_one_value_becomes_many_and_all_else_stays(name: str, value: float, dtype: torch.dtype) -> None:
    constant, plain = torch.full((32, 48), value).to(dtype).t(), torch.randn(8, 8)
    other, same = transform([constant, plain], name, 1)
    assert same is plain
    assert (other.shape, other.stride(), other.dtype) == (constant.shape, constant.stride(), dtype)
    may_change = dtype.is_floating_point or (name == "holed" and value >= 0)
    assert holds_one_value(other) is not may_change or name == "holed"
    assert not other.is_floating_point() or bool((other.float() - value).abs().max() <= max(1.0, abs(value)))
    assert other.is_floating_point() or bool((other <= max(value, 1)).all())
    assert changes([constant], name) and not changes([plain], name)


def test_holes_are_zeros_and_lengths_are_never_longer() -> None:
    lengths = transform([torch.full((1000,), 48)], "filled", 3)[0]
    assert int(lengths.min()) >= 1 and int(lengths.max()) == 48 and len(lengths.unique()) > 30
    mask, state = transform([torch.ones(1000, dtype=torch.bool), torch.zeros(1000)], "holed", 3)
    assert 0.15 < float((~mask).float().mean()) < 0.35
    assert bool((state == 1.0).any()) and bool((state.abs() <= 1.0).all())
    assert transform([torch.full((4,), float("-inf"))], "filled", 3)[0].isinf().all()
