"""Inputs of timed calls lie where contestants can write: the judge knows what it wrote, without a device."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from kerneldojo.devices.cuda import page as pages
from kerneldojo.devices.cuda.content import ways_of
from kerneldojo.devices.cuda.inputs import InputSets, Layout
from kerneldojo.devices.cuda.recipes import Way
from kerneldojo.devices.cuda.rotation import flat
from kerneldojo.devices.cuda.sampling import BLOCK_BYTES, NUM_BLOCKS, Sample, draw_plan
from kerneldojo.devices.cuda.window import Timed
from kerneldojo.judging import preparation
from kerneldojo.judging.contestant import Answer
from kerneldojo.judging.inspection import Inspection
from kerneldojo.judging.ruling import Ruling
from kerneldojo.schema import Status

COUNT, LENGTH = 5, 3


class Region:
    """Host memory that poses as a region."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.memory = torch.zeros(size, dtype=torch.uint8)

    def tensor(self, offset: int, shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        whole = self.memory[: self.size // dtype.itemsize * dtype.itemsize].view(dtype)
        return whole.as_strided(shape, stride, offset // dtype.itemsize)


def drawn() -> list[torch.Tensor]:
    """A set of inputs: some that are moved about, of odd sizes too, one that is not, one of which a part is missing;
    and one of each kind that is changed in a way of its own."""
    holed = torch.randn(64, 33)
    holed[3] = float("nan")
    return [
        torch.randn(40, 30).t(),
        torch.randn(1001).to(torch.bfloat16),
        torch.randint(0, 9, (70,)),
        holed,
        torch.randn(5).to(torch.float8_e4m3fn),
        torch.empty(0),
        torch.tril(torch.randn(20, 20)).t(),
        torch.rand(30, 9).to(torch.bfloat16),
        torch.randn(3, 14, 14),
    ]


WAYS: list[Way] = ["rotate", "rotate", "choose", "rotate", "rotate", "rotate", "mix", "permute", "reorder"]


@pytest.fixture
def inputs() -> InputSets:
    region: Any = Region(1 << 20)
    bases = [drawn() for _ in range(3)]
    return InputSets(region, bases, WAYS, COUNT)


def views(inputs: InputSets, index: int) -> list[torch.Tensor]:
    return [
        inputs._region.tensor(inputs.offset(index, number), layout.shape, layout.stride, layout.dtype)
        for number, layout in enumerate(inputs.layouts)
    ]


def stamp(inputs: InputSets) -> None:
    """All of it, as before a window."""
    drawn = inputs.draw_stamp(LENGTH)
    drawn.exchange()
    drawn.settle()


def bits(tensor: torch.Tensor) -> list[int]:
    return tensor.contiguous().reshape(-1).view(torch.uint8).tolist()


@pytest.mark.parametrize("stamped", [False, True])
def test_what_was_written_can_be_said_again(inputs: InputSets, stamped: bool) -> None:
    for _ in range(3):
        inputs.refresh(LENGTH)
        drawn = inputs.draw_stamp(LENGTH)
        if stamped:
            before = [bits(tensor) for tensor in views(inputs, 0)]
            drawn.exchange()
            assert before != [bits(tensor) for tensor in views(inputs, 0)]
            drawn.settle()
        for index in range(LENGTH):
            assert list(map(bits, inputs.written(index))) == list(map(bits, views(inputs, index)))
            assert [Layout.of(tensor) for tensor in inputs.written(index)] == inputs.layouts
        kept = [list(map(bits, inputs.written(index))) for index in range(LENGTH)]
        for index in range(LENGTH):
            assert not inputs.differs(index)
            assert list(map(bits, inputs.written(index))) == kept[index], "whatever has been looked at"


def test_who_plays_next_meets_what_the_first_one_met_whatever_that_one_wrote(inputs: InputSets) -> None:
    for _ in range(3):
        inputs.refresh(LENGTH)
        drawn = inputs.draw_stamp(LENGTH)
        drawn.exchange()
        drawn.settle()
        met = [list(map(bits, views(inputs, index))) for index in range(LENGTH)]
        for _ in range(2):
            for index in range(LENGTH):
                for tensor in views(inputs, index):
                    tensor.zero_()
            inputs.restore()
            drawn.exchange()
            drawn.settle()
            assert [list(map(bits, views(inputs, index))) for index in range(LENGTH)] == met
        assert [list(map(bits, inputs.written(index))) for index in range(LENGTH)] == met


def test_a_part_of_the_first_set_comes_last_and_is_written_if_nobody_does(inputs: InputSets) -> None:
    for _ in range(10):
        inputs.refresh(LENGTH)
        drawn = inputs.draw_stamp(LENGTH)
        drawn.exchange()
        meanwhile = [[bits(tensor) for tensor in views(inputs, index)] for index in range(LENGTH)]
        at, content = drawn.last
        assert len(content) >= 4
        taken = inputs._region.memory.clone()  # type: ignore[attr-defined]
        taken[at : at + len(content)] = torch.from_numpy(content)
        drawn.exchange()
        assert meanwhile == [[bits(tensor) for tensor in views(inputs, index)] for index in range(LENGTH)], "only once"
        drawn.settle()
        assert torch.equal(inputs._region.memory, taken), "as a side does that writes what the signal brings"  # type: ignore[attr-defined]
        now = [[bits(tensor) for tensor in views(inputs, index)] for index in range(LENGTH)]
        assert now[0] != meanwhile[0], "whoever computed ahead met other content"
        assert now[1:] == meanwhile[1:]


def test_a_side_that_ends_before_it_has_written_the_last_part_does_not_make_inputs_look_changed(
    inputs: InputSets,
) -> None:
    for _ in range(10):
        inputs.refresh(LENGTH)
        before = [list(map(bits, views(inputs, index))) for index in range(LENGTH)]
        inputs.draw_stamp(LENGTH).exchange()
        assert before != [list(map(bits, views(inputs, index))) for index in range(LENGTH)]
        kept = [list(map(bits, inputs.written(index))) for index in range(LENGTH)]
        assert not any(inputs.differs(index) for index in range(LENGTH))
        assert before == [list(map(bits, views(inputs, index))) for index in range(LENGTH)], "all of it is undone"
        assert kept == [list(map(bits, inputs.written(index))) for index in range(LENGTH)]


def test_one_drawn_set_is_enough_for_new_content_and_none_is_not(inputs: InputSets) -> None:
    inputs.refresh(COUNT)
    before = [[view.clone() for view in views(inputs, index)] for index in range(COUNT)]
    inputs.forget_bases(num_left=1)
    assert inputs.can_refresh
    inputs.refresh(LENGTH)
    for index in range(COUNT):
        is_new = [
            not torch.equal(flat(view).view(torch.uint8), flat(was).view(torch.uint8))
            for view, was in zip(views(inputs, index), before[index], strict=True)
        ]
        assert any(is_new) == (index < LENGTH)
        if index < LENGTH:
            assert not inputs.differs(index)
    inputs.forget_bases(num_left=0)
    assert not inputs.can_refresh


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4, 6, 7, 8])
def test_one_element_that_somebody_wrote_is_seen(inputs: InputSets, number: int) -> None:
    inputs.refresh(LENGTH)
    stamp(inputs)
    kept = [bits(tensor) for tensor in inputs.written(1)]
    place = flat(inputs._targets[1][number]).view(torch.uint8)
    place[-1] ^= 1
    assert inputs.differs(1)
    assert inputs.differs(1), "and again"
    assert [bits(tensor) for tensor in inputs.written(1)] == kept
    assert not inputs.differs(0)
    assert not inputs.differs(2)


def triangle() -> torch.Tensor:
    return torch.tril(torch.randn(60, 60)).to(torch.bfloat16)


def distributions() -> torch.Tensor:
    return torch.rand(25, 30).softmax(-1)


@pytest.mark.parametrize("draw", [triangle, distributions])
def test_what_has_structure_is_changed_last_too_and_keeps_it(draw: Callable[[], torch.Tensor]) -> None:
    """Else a first call could be computed before the clock."""
    bases = [[draw()] for _ in range(3)]
    region: Any = Region(1 << 20)
    inputs = InputSets(region, bases, ways_of(bases), COUNT)
    for _ in range(20):
        inputs.refresh(LENGTH)
        before = [bits(views(inputs, index)[0]) for index in range(LENGTH)]
        drawn = inputs.draw_stamp(LENGTH)
        drawn.exchange()
        assert all(bits(views(inputs, index)[0]) != before[index] for index in range(LENGTH))
        (meanwhile,) = (view.clone() for view in views(inputs, 0))
        drawn.settle()
        (now,) = views(inputs, 0)
        assert len(drawn.last[1]) >= 4 and not torch.equal(now, meanwhile)
        changed = {(index, place // now.element_size()) for index, place, _ in drawn.places()}
        assert {index for index, _ in changed} == set(range(LENGTH))
        for index in range(LENGTH):
            (found,) = views(inputs, index)
            assert ways_of([[found]] * 2) == ways_of(bases)
            if draw is triangle:
                assert torch.equal(found == 0, bases[0][0] == 0)
            assert bits(inputs.written(index)[0]) == bits(found)
        assert not any(inputs.differs(index) for index in range(LENGTH))


class Clock:
    """Looks at every call whole, as the stopwatch reads outputs."""

    def __init__(self, outputs: list[torch.Tensor]) -> None:
        self._outputs = outputs

    def output(self, _: Any, __: Any, call: int, ___: int) -> torch.Tensor:
        return self._outputs[call]


def played(inputs: InputSets, forward: Any, *, may_change_inputs: bool = False) -> Inspection:
    """One round: the contestant is timed first, and then the reference, which finds the sum of what it meets."""
    inputs.refresh(LENGTH)
    stamp(inputs)
    outputs = [forward(views(inputs, call)[0]) for call in range(LENGTH)]
    layouts = (Layout.of(outputs[0]),)
    plan = draw_plan(LENGTH, layouts)

    def timed(values: list[torch.Tensor]) -> Timed:
        blocks = torch.zeros((NUM_BLOCKS, BLOCK_BYTES), dtype=torch.uint8)
        for row, call in enumerate(plan.calls):
            blocks[row, :4] = values[call].reshape(1).view(torch.uint8)
        nowhere = np.zeros((LENGTH, 1), dtype=np.int64)
        return Timed(LENGTH, 1.0, 1.0, 1.0, 1.0, pages.OK, True, True, Sample(plan, blocks, layouts), nowhere)

    side: Any = SimpleNamespace(layouts=layouts)
    sides = {"contestant": side, "reference": side}
    inspection = Inspection(sides, inputs, Clock(outputs), may_change_inputs=may_change_inputs)
    inspection._chance = SimpleNamespace(randrange=lambda _: 1, random=lambda: 0.0)  # type: ignore[assignment]
    theirs = [views(inputs, call)[0].sum() for call in range(LENGTH)]
    inspection(LENGTH, {"contestant": timed(outputs), "reference": timed(theirs)})
    return inspection


def zeroed(x: torch.Tensor) -> torch.Tensor:
    """The answer is known without a look at the input, which the reference then meets."""
    x.zero_()
    return torch.zeros(())


def test_who_makes_its_timed_inputs_easy_is_found_out_though_the_reference_agrees(inputs: InputSets) -> None:
    honest = played(inputs, lambda x: x.sum())
    honest.compare()
    inspection = played(inputs, zeroed)
    with pytest.raises(Ruling, match="wrote to its inputs"):
        inspection.compare()
    (witness,) = inspection.witnesses
    assert not torch.equal(witness.inputs[0].sum(), witness.outputs[0]), "the oracle would agree with it, too"


def test_a_reference_that_writes_to_its_inputs_excuses_who_does_the_same(inputs: InputSets) -> None:
    inspection = played(inputs, zeroed, may_change_inputs=True)
    inspection.compare()
    (witness,) = inspection.witnesses
    assert not torch.equal(witness.inputs[0].sum(), witness.outputs[0]), "what it was asked is what it is held to"


@pytest.mark.parametrize(
    "outputs",
    [[], [torch.zeros(8), torch.zeros(8)], [torch.zeros(9)], [torch.zeros(8, dtype=torch.float64)]],
    ids=["none", "one more", "longer", "another type"],
)
def test_the_first_timed_call_has_the_outputs_that_it_should_have(outputs: list[torch.Tensor]) -> None:
    """Else samples are looked up where the reference has nothing, and an index out of bounds breaks the device."""
    region: Any = Region(1 << 16)
    hosted: Any = SimpleNamespace(arena=SimpleNamespace(base=lambda _: 0, inputs=region), give=lambda _: {})
    nothing: frozenset[int] = frozenset()
    expected = SimpleNamespace(
        outputs={"native": [torch.zeros(8)]}, mutates_inputs=False, returns_state=nothing, overlaps=nothing
    )
    told_of: list[str] = []
    reference = SimpleNamespace(hosted=hosted, expect=lambda *_: expected)
    reference.post_ready = lambda *_: told_of.append("ready")
    reference.collect_ready = lambda: told_of.remove("ready")
    match: Any = SimpleNamespace(reference=reference)
    findings: Any = SimpleNamespace(protocol=SimpleNamespace(baseline="eager"), notes=[])

    def prepared(answer: list[torch.Tensor]) -> Any:
        told = Answer(answer, [{} for _ in answer], None, [], [], 0.0)
        match.contestant = SimpleNamespace(hosted=hosted, call=lambda *_: told, get_ready=lambda *_: None)
        return preparation.prepare(match, [[torch.randn(8)]], region, findings)

    assert prepared([torch.ones(8)]).layouts == [Layout((8,), (1,), torch.float32)]
    with pytest.raises(Ruling) as caught:
        prepared(outputs)
    assert caught.value.status is Status.INCORRECT
    assert not told_of, "the reference runner can be asked other things"
