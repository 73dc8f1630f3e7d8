"""What is sampled of timed calls is held against the reference, window by window, without a device."""

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from kerneldojo.devices.cuda import page as pages
from kerneldojo.devices.cuda.inputs import Layout
from kerneldojo.devices.cuda.sampling import BLOCK_BYTES, Plan, Sample, draw_plan
from kerneldojo.devices.cuda.window import Timed
from kerneldojo.judging import inspection as inspection_module
from kerneldojo.judging.inspection import Inspection
from kerneldojo.judging.ruling import Ruling

LENGTH = 3


def sampled(plan: Plan, outputs: list[list[torch.Tensor]]) -> Timed:
    """A window whose calls returned `outputs`, as the stopwatch would have read them."""
    layouts = tuple(Layout.of(tensor) for tensor in outputs[0])
    blocks = torch.zeros((len(plan.calls), BLOCK_BYTES), dtype=torch.uint8)
    calls, tensors, starts = (torch.as_tensor(one) for one in (plan.calls, plan.tensors, plan.starts))
    for call, number in itertools.product(range(len(outputs)), range(len(layouts))):
        rows = ((calls == call) & (tensors == number)).nonzero()[:, 0]
        tensor = outputs[call][number]
        memory = tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)
        beyond = torch.cat([memory, memory.new_zeros(BLOCK_BYTES)])
        blocks[rows] = beyond[starts[rows, None] + torch.arange(BLOCK_BYTES)]
    return Timed(
        length=LENGTH,
        wall_us=1.0,
        done_us=1.0,
        prepare_us=1.0,
        prime_us=1.0,
        state=pages.OK,
        in_bounds=True,
        disjoint=True,
        sample=Sample(plan, blocks, layouts),
        offsets=np.zeros((LENGTH, len(layouts)), dtype=np.int64),
    )


def inspect(mine: list[list[list[torch.Tensor]]], theirs: list[list[list[torch.Tensor]]]) -> Inspection:
    """Rounds of windows: outputs by round, call and number."""
    first: Any = [Layout.of(tensor) for tensor in mine[0][0]]
    second: Any = [Layout.of(tensor) for tensor in theirs[0][0]]
    current: list[list[torch.Tensor]] = []
    stopwatch = SimpleNamespace(output=lambda side, timed, call, number: current[call][number])
    sides: Any = {"contestant": SimpleNamespace(layouts=first), "reference": SimpleNamespace(layouts=second)}
    inputs: Any = SimpleNamespace(written=lambda call: [], differs=lambda call: torch.tensor(False))
    inspection = Inspection(sides, inputs, stopwatch)
    inspection._chance = SimpleNamespace(randrange=inspection._chance.randrange, random=lambda: 1.0)  # type: ignore[assignment]
    for ours, right in zip(mine, theirs, strict=True):
        current = right
        plan = draw_plan(LENGTH, first)
        other = plan if first == second else draw_plan(LENGTH, second)
        timed = {"contestant": sampled(plan, ours), "reference": sampled(other, right)}
        inspection(LENGTH, timed)
    return inspection


def rounds(*, transposed: bool = False) -> list[list[list[torch.Tensor]]]:
    def one() -> list[torch.Tensor]:
        values = torch.randn(64, 48)
        return [values.t().contiguous().t() if transposed else values, torch.randint(0, 9, (500,))]

    return [[one() for _ in range(LENGTH)] for _ in range(6)]


def copied(outputs: list[list[list[torch.Tensor]]]) -> list[list[list[torch.Tensor]]]:
    return [[[tensor.clone() for tensor in call] for call in window] for window in outputs]


@pytest.mark.parametrize("transposed", [False, True])
def test_what_agrees_everywhere_passes(transposed: bool) -> None:
    right = rounds()
    mine = copied(right)
    if transposed:
        mine = [[[call[0].t().contiguous().t(), call[1]] for call in window] for window in mine]
    inspection = inspect(mine, right)
    assert inspection.wrong is None
    inspection.compare()


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("transposed", [False, True])
def test_an_output_that_is_wrong_in_all_calls_of_one_window_is_found(number: int, transposed: bool) -> None:
    right = rounds()
    mine = copied(right)
    for call in mine[4]:
        call[number] = torch.roll(call[number], 7)
    if transposed:
        mine = [[[call[0].t().contiguous().t(), call[1]] for call in window] for window in mine]
    with pytest.raises(Ruling, match="wrong in timed calls"):
        inspect(mine, right).compare()


@pytest.mark.parametrize(("ago", "waited"), [(0.0, inspection_module.LATER_SECONDS), (0.0015, 0.0005), (1.0, 0.0)])
def test_what_is_remembered_is_looked_at_a_while_after_the_clock_has_stopped(
    monkeypatch: pytest.MonkeyPatch, ago: float, waited: float
) -> None:
    naps: list[float] = []
    # A clock that stands still: what this machine is busy with would count as waited else.
    clock = SimpleNamespace(sleep=naps.append, perf_counter=lambda: 100.0)
    monkeypatch.setattr(inspection_module, "time", clock)
    right = rounds()[0]
    inspection = inspect([right], [right])
    inspection._chance = SimpleNamespace(randrange=lambda _: 0, random=lambda: 0.0)  # type: ignore[assignment]
    timed = sampled(draw_plan(LENGTH, [Layout.of(tensor) for tensor in right[0]]), right)
    late = Timed(**{**vars(timed), "stopped": clock.perf_counter() - ago})
    inspection(LENGTH, {"contestant": late, "reference": timed})
    assert naps[-1:] == [pytest.approx(waited, abs=1e-9)]
    assert len(inspection.witnesses) == 2, "the first round's, and this one's"


def remembered(done_us: list[float], *, num_bytes: int = 0) -> list[int]:
    """The rounds of which a call is remembered whole when a series is over in which windows took so long."""
    asked: list[int] = []
    layouts = [Layout.of(torch.zeros(1))]
    sides: Any = {"contestant": SimpleNamespace(layouts=layouts), "reference": SimpleNamespace(layouts=layouts)}
    large = torch.zeros(1).expand(max(1, num_bytes // 4))
    inputs: Any = SimpleNamespace(written=lambda call: [large], differs=lambda call: torch.tensor(False))
    stopwatch = SimpleNamespace(output=lambda side, timed, call, number: torch.tensor([float(asked[-1])]))
    inspection = Inspection(sides, inputs, stopwatch)
    plan = draw_plan(LENGTH, layouts)
    for number, taken_us in enumerate(done_us):
        asked.append(number)
        timed = sampled(plan, [[torch.tensor([float(number)])] for _ in range(LENGTH)])
        timed = Timed(**{**vars(timed), "done_us": taken_us * LENGTH})
        inspection(LENGTH, {"contestant": timed, "reference": timed})
    assert not inspection._may_change_inputs
    return [int(one.outputs[0]) for one in inspection.witnesses]


def test_no_window_is_too_late_to_be_remembered() -> None:
    """Places that are given in the order of rounds are soon gone: who is right until then may answer anything after."""
    found = [remembered([100.0] * 40) for _ in range(100)]
    assert all(len(one) == inspection_module.NUM_FULL_CHECKS for one in found)
    others = [number for one in found for number in one if number]
    assert min(others) < 8 and max(others) > 32
    assert 60 < sum(number >= 20 for number in others) < 140


def test_who_is_quicker_once_it_thinks_itself_unseen_is_remembered_then() -> None:
    for quicker_us in (10.0, 60.0, 95.0):
        assert any(number >= 30 for number in remembered([100.0] * 30 + [quicker_us] * 10))


def test_a_call_of_gigabytes_has_one_place_and_nobody_knows_whose_it_is() -> None:
    found = [remembered([100.0] * 10 + [50.0] + [100.0] * 9, num_bytes=3 << 30) for _ in range(60)]
    assert all(len(one) == 1 for one in found)
    assert 12 < sum(one == [10] for one in found) < 55


def test_what_the_clock_saw_of_a_remembered_call_is_kept_with_it() -> None:
    """Of every output of which anything was sampled: held against the whole, it tells what was written later."""
    right = rounds()
    inspection = inspect(right, copied(right))
    assert inspection.witnesses
    num_seen = 0
    for one in inspection.witnesses:
        for number, indices, values in one.sampled:
            assert torch.equal(one.outputs[number].reshape(-1)[indices], values)
            num_seen += 1
    assert num_seen >= len(inspection.witnesses)


def test_a_place_that_is_given_again_is_nobody_elses_any_more() -> None:
    """Or memory would fill with what was the quickest once."""
    for _ in range(20):
        assert len(remembered([100.0 * 0.9**number for number in range(40)])) <= inspection_module.NUM_FULL_CHECKS
        assert len(remembered([100.0] * 200)) == inspection_module.NUM_FULL_CHECKS
        assert len(remembered([100.0 * 0.9 ** (number // 3) for number in range(40)], num_bytes=3 << 30)) == 1


@pytest.mark.parametrize(
    ("dtype", "loose"), [(torch.float32, 2e-2), (torch.float16, 5e-2), (torch.bfloat16, 1e-1), (torch.float64, 1e-6)]
)
@pytest.mark.parametrize("scale", [1.0, 64.0])
def test_a_sampled_output_may_be_off_by_a_part_of_the_rms_and_of_itself(
    dtype: torch.dtype, loose: float, scale: float
) -> None:
    """Of ones and threes, whose rms is the square root of five."""
    right = scale * torch.tensor([1.0, 3.0] * 50)
    for place, own in ((0, 1.0), (1, 3.0)):
        for share, agrees in ((0.97, True), (1.1, False)):
            mine = right.double()
            mine[place] += share * loose * scale * (5**0.5 + own)
            wide = mine if dtype == torch.float64 else mine.float()
            assert inspection_module.agree(wide, right.to(dtype)) == agrees


def test_of_integers_nearly_all_are_the_same() -> None:
    right = torch.arange(1000)
    for num_off, agrees in ((0, True), (9, True), (10, False), (1000, False)):
        mine = right.clone()
        mine[:num_off] += 1
        assert inspection_module.agree(mine, right) == agrees


def test_what_is_no_number_is_so_in_both() -> None:
    right = torch.ones(100)
    right[3] = float("nan")
    assert inspection_module.agree(right.clone(), right)
    assert not inspection_module.agree(torch.ones(100), right)
    assert not inspection_module.agree(right, torch.ones(100))
    assert inspection_module.agree(torch.full((9,), float("inf")), torch.full((9,), float("-inf"))), (
        "left to the checks"
    )


def test_a_reused_buffer_ends_it_at_once() -> None:
    inspection = inspect(rounds(), rounds())
    inspection.wrong = None
    layouts = [Layout.of(tensor) for tensor in rounds()[0][0]]
    timed = sampled(draw_plan(LENGTH, layouts), rounds()[0])
    shared = Timed(**{**vars(timed), "disjoint": False})
    inspection(LENGTH, {"contestant": shared, "reference": timed})
    assert inspection.wrong is not None
    assert "reused output buffer" in str(inspection.wrong)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float32, torch.int64])
def test_outputs_of_any_kind_agree_with_themselves_and_with_no_others(dtype: torch.dtype) -> None:
    values = 8 * torch.randn(4096)
    right = values.to(dtype)
    assert inspection_module.agree(right.clone(), right)
    assert not inspection_module.agree(values.flip(0).to(dtype), right)
    if dtype.is_floating_point:
        assert not inspection_module.agree(torch.full((4096,), float("nan")).to(dtype), right)


def test_what_is_too_small_to_be_exact_is_nothing_to_tell_two_apart() -> None:
    """A product of 256 normal numbers: 1e-40 in one order of them, and nothing in another."""
    right = torch.zeros(4096)
    right[7] = 1e-40
    for mine in (torch.zeros(4096), torch.full((4096,), 1e-41)):
        assert inspection_module.agree(mine, right)
        assert inspection_module.agree(mine.bfloat16(), right.bfloat16())
    assert not inspection_module.agree(torch.full((4096,), 1e-30), right)
    assert not inspection_module.agree(torch.full((4096,), 1e-40).double(), right.double())
    assert not inspection_module.agree(torch.full((4096,), 1e-6).half(), right.half())
