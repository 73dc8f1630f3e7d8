"""How the reference's weights find their way into a candidate."""

from __future__ import annotations

import torch

from kerneldojo.judging.delivery import match_states

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


LAYERS = {f"net.{at}.{name}": torch.randn(shape) for at in (0, 2, 4) for name, shape in (("w", (4, 4)), ("b", (4,)))}
"""Of a network: all alike."""
OTHER_WAY = {
    f"{mine}.{name}": f"net.{theirs}.{name}" for mine, theirs in (("last", 4), ("0", 0), ("1", 2)) for name in "wb"
}
"""As one registers them that makes the last layer an attribute before the list of the others."""


def test_what_has_drawn_the_same_is_known_by_it_in_whatever_order() -> None:
    own = {mine: LAYERS[theirs].clone() for mine, theirs in OTHER_WAY.items()}
    delivery = match_states(own, LAYERS)
    assert {mine: theirs for theirs, mine in delivery.pairs.items()} == OTHER_WAY
    assert not delivery.needed


def test_what_is_left_of_those_that_have_drawn_the_same_is_dealt_by_shape() -> None:
    theirs = {"a.w": torch.randn(4, 4), "a.scale": torch.randn(4), "b.w": torch.randn(4, 4), "b.scale": torch.randn(4)}
    own = {"b": theirs["b.w"], "a": theirs["a.w"], "s": torch.ones(4), "t": torch.ones(4)}
    delivery = match_states(own, theirs)
    assert delivery.names == ["a", "s", "b", "t"]
    assert delivery.needed
    assert not match_states({**own, "more": torch.ones(4)}, theirs).names, "which of three?"
    assert match_states({**own, "more": torch.ones(5)}, theirs).names == ["a", "s", "b", "t"]


def test_what_was_drawn_elsewhere_is_dealt_by_shape() -> None:
    """`torch.Tensor(3, 4)` is on the host, which draws other numbers."""
    theirs = {"0.w": torch.randn(8, 3), "0.b": torch.randn(8), "1.w": torch.randn(8, 8), "1.b": torch.randn(8)}
    theirs |= {"2.w": torch.randn(2, 8), "2.b": torch.randn(2)}
    order = ("2.w", "2.b", "0.w", "0.b", "1.w", "1.b")
    own = {f"my.{name}": torch.randn(theirs[name].shape) for name in order}
    delivery = match_states(own, theirs)
    assert delivery.names == [f"my.{name}" for name in theirs]
    assert delivery.needed
    del own["my.1.w"]
    assert not match_states(own, theirs).names
    assert not match_states({**own, "other": torch.randn(8, 9)}, theirs).names


def test_no_parameters_at_all() -> None:
    assert not match_states({}, {}).needed
