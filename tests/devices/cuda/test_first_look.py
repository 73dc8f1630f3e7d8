"""Some elements of an output are what was found right behind the call, whatever is there later."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kerneldojo.contestant.tree import tensors
from kerneldojo.devices.cuda.first_look import MOST_ELEMENTS, FirstLook, stand_in


@pytest.mark.parametrize("shape", [(3,), (5000,), (70, 100), (8193,), (1 << 20,)])
def test_what_is_written_later_is_not_seen_in_some_places(shape: tuple[int, ...]) -> None:
    output, look = torch.zeros(shape), FirstLook()
    look.take(output)
    output.fill_(1.0)
    found = look.of(output.detach())
    assert found is not None
    stand_in(found, copy := output.clone())
    places = copy.reshape(-1).eq(0.0).nonzero().flatten()
    assert min(output.numel(), MOST_ELEMENTS) <= len(places) < 2 * MOST_ELEMENTS
    step = -(-output.numel() // MOST_ELEMENTS)
    assert places[0] < step and places[-1] >= output.numel() - step and (places.diff() <= step).all(), "all over it"


def test_nobody_knows_the_places_before_the_call_is_over() -> None:
    output, look, seen = torch.zeros(1 << 20), FirstLook(), set[int]()
    for _ in range(20):
        look.take(output)
        found = look.of(output)
        assert found is not None
        seen.add(found.start)
    assert len(seen) > 5


def test_one_that_was_there_stays_as_it_is() -> None:
    outputs, look = (torch.randn(9000), torch.arange(7)), FirstLook()
    look.take(outputs)
    for output in outputs:
        found = look.of(output)
        assert found is not None
        stand_in(found, copy := output.clone())
        assert torch.equal(copy, output)


@pytest.mark.parametrize(
    "outputs",
    [
        torch.zeros(70, 1000).t(),
        torch.zeros(2, 8, 50, 90).to(memory_format=torch.channels_last),
        torch.nn.Parameter(torch.zeros(3)),
        {"y": torch.zeros(3)},
        ([torch.zeros(3)],),
        torch.zeros(()),
    ],
    ids=["transposed", "channels last", "parameter", "by name", "nested", "scalar"],
)
def test_however_an_output_lies_it_is_looked_at(outputs: Any) -> None:
    """Else whoever leaves work on another stream has only to return its result turned round."""
    (output,), look = tensors(outputs), FirstLook()
    with torch.no_grad():
        look.take(outputs)
        output.fill_(1.0)
    found = look.of(output.detach())
    assert found is not None
    stand_in(found, copy := output.detach().clone())
    assert int(copy.eq(0.0).sum()) >= min(output.numel(), MOST_ELEMENTS)


def test_one_memory_may_be_two_outputs_of_two_kinds() -> None:
    numbers = torch.randn(100)
    outputs, look = (numbers, numbers.view(torch.int32)), FirstLook()
    look.take(outputs)
    for output in outputs:
        found = look.of(output)
        assert found is not None
        stand_in(found, copy := output.clone())
        assert torch.equal(copy, output)


def test_an_output_of_inference_mode_may_stay_where_it_is() -> None:
    """As where there is no room for a copy of it."""
    with torch.inference_mode():
        output = torch.randn(5000)
    look = FirstLook()
    look.take(output)
    found = look.of(output.detach())
    assert found is not None
    before = output.clone()
    stand_in(found, output.detach())
    assert torch.equal(output, before)


@pytest.mark.parametrize(
    "output",
    [torch.zeros(0), torch.zeros(3, device="meta"), torch.eye(3).to_sparse(), torch.zeros(1).expand(9), None],
    ids=["empty", "meta", "sparse", "expanded", "none"],
)
def test_others_are_not_looked_at(output: Any) -> None:
    look = FirstLook()
    look.take(output)
    assert look.of(torch.zeros(3)) is None


def test_outputs_within_themselves_are_none() -> None:
    """Whoever describes them says so."""
    outputs: list[Any] = []
    outputs.append(outputs)
    look = FirstLook()
    look.take(outputs)
    assert look.of(torch.zeros(3)) is None


def test_nothing_is_known_of_an_output_after_the_next_command() -> None:
    output, look = torch.zeros(3), FirstLook()
    look.take(output)
    look.forget()
    assert look.of(output) is None
