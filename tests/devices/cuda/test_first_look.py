"""The end of an output is what was found right behind the call, whatever is there later."""

from __future__ import annotations

import pytest
import torch

from kerneldojo.devices.cuda.first_look import MOST_ELEMENTS, FirstLook, stand_in


@pytest.mark.parametrize("shape", [(3,), (5000,), (70, 100)])
def test_what_is_written_later_is_not_seen_at_the_end(shape: tuple[int, ...]) -> None:
    output, look = torch.zeros(shape), FirstLook()
    look.take(output)
    output.fill_(1.0)
    found = look.of(output.detach())
    assert found is not None
    stand_in(found, copy := output.clone())
    assert copy.reshape(-1)[-MOST_ELEMENTS:].eq(0.0).all() and copy.reshape(-1)[:-MOST_ELEMENTS].eq(1.0).all()


def test_one_that_was_there_stays_as_it_is() -> None:
    outputs, look = (torch.randn(9000), torch.arange(7)), FirstLook()
    look.take(outputs)
    for output in outputs:
        found = look.of(output)
        assert found is not None
        stand_in(found, copy := output.clone())
        assert torch.equal(copy, output)


@pytest.mark.parametrize(
    "output", [torch.zeros(4, 6).t(), torch.zeros(0), torch.nn.Parameter(torch.zeros(3)), {"y": torch.zeros(3)}, None]
)
def test_others_are_not_looked_at(output: object) -> None:
    look = FirstLook()
    look.take(output)
    assert look.of(torch.zeros(3)) is None
    assert not isinstance(output, torch.Tensor) or look.of(output) is None


def test_nothing_is_known_of_an_output_after_the_next_command() -> None:
    output, look = torch.zeros(3), FirstLook()
    look.take(output)
    look.forget()
    assert look.of(output) is None
