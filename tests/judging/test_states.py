"""How the reference's weights find their way into a candidate."""

from __future__ import annotations

import torch

from kerneldojo.judging.contestant import match_states

W, B = torch.randn(3, 4), torch.randn(3)


def test_equal_states_need_no_delivery() -> None:
    delivery = match_states({"w": W.clone(), "b": B.clone()}, {"w": W, "b": B})
    assert delivery.names == ["w", "b"]
    assert not delivery.needed


def test_other_values_are_delivered_by_name_whatever_the_order() -> None:
    delivery = match_states({"b": torch.zeros(3), "w": torch.zeros(3, 4)}, {"w": W, "b": B})
    assert delivery.names == ["w", "b"]
    assert delivery.needed


def test_other_names_are_matched_by_position() -> None:
    delivery = match_states({"weight": torch.zeros(3, 4), "bias": torch.zeros(3, 1)}, {"fc.weight": W, "fc.bias": B})
    assert delivery.pairs == {"fc.weight": "weight", "fc.bias": "bias"}
    assert delivery.needed


def test_extra_tensors_of_the_candidate_do_not_matter() -> None:
    delivery = match_states({"packed": torch.zeros(9), "w": W, "b": B}, {"w": W, "b": B})
    assert delivery.names == ["w", "b"]
    assert not delivery.needed


def test_another_layout_is_matched_with_nothing() -> None:
    delivery = match_states({"packed": torch.zeros(15)}, {"w": W, "b": B})
    assert delivery.names == []
    assert delivery.needed


def test_no_parameters_at_all() -> None:
    assert not match_states({}, {}).needed
