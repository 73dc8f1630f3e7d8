"""A reference is timed once more when its candidate is dead, and then that is what counts. No device is needed."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gpu_steps import HONEST, IN_PLACE, LIBRARY, TWIN, HostBench, Windows, idle, judge, passed, refused

from kerneldojo.devices.cuda import page as pages
from kerneldojo.devices.cuda.clock import Watch
from kerneldojo.devices.cuda.fits import Window
from kerneldojo.devices.cuda.inputs import Layout
from kerneldojo.devices.cuda.series import Series
from kerneldojo.devices.cuda.trials import Trials
from kerneldojo.devices.cuda.window import Timed
from kerneldojo.judging import confirmation
from kerneldojo.judging.ends import Died, Infrastructure
from kerneldojo.judging.preparation import Prepared
from kerneldojo.judging.processes import Session
from kerneldojo.judging.protocol import Protocol, protocol
from kerneldojo.judging.reference import Reference
from kerneldojo.judging.reference_times import ReferenceTimes, Settled
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.sides import SideEnded
from kerneldojo.judging.verdict import Findings
from kerneldojo.schema import Candidate, Problem, Status

PAGE = SimpleNamespace(put_last=lambda *_: None, last=lambda n: np.zeros(n, np.uint8))


class Hosted:
    """A reference runner that answers."""

    def __init__(self) -> None:
        self.arena = SimpleNamespace(page=PAGE)
        self.session = self
        self.told: list[str] = []

    def post(self, *_: Any, **__: Any) -> None:
        self.told.append("begin")

    def collect(self, _: float) -> dict[str, Any]:
        self.told.append("end")
        return {}


class Clock:
    """A stopwatch by which a call takes so many microseconds, give or take a few for a window."""

    def __init__(self, call_us: float, state: int = pages.OK, end: Exception | None = None) -> None:
        self.call_us, self.state, self.ends_with = call_us, state, end
        self.lengths: list[int] = []
        self._chance = random.Random(1)

    def time(self, _: Any, length: int, __: Any, *, is_warmed: bool) -> Timed:
        if self.ends_with is not None:
            raise self.ends_with
        self.lengths.append(length)
        wall_us = 240 + self.call_us * length + self._chance.random()
        offsets: Any = np.zeros((length, 1), np.int64)
        return Timed(length, wall_us + 60, wall_us, 200, 100, self.state, True, True, None, offsets, taken_us=20.0)

    def order_release(self, _: Any) -> None: ...

    await_release = end = order_release


class Inputs:
    """Of timed calls."""

    def __init__(self, num_bases: int, count: int) -> None:
        self.can_refresh, self.count = num_bases > 0, count
        self.refreshed: list[int] = []

    def refresh(self, length: int) -> None:
        self.refreshed.append(length)


def prepared(longest: int, per_call_us: float = 100.0, num_bases: int = 1) -> Prepared:
    windows = [Window(length, 300 + per_call_us * length, is_warmed=True) for length in (1, longest)]
    output = Layout.of(torch.zeros(64))
    inputs: Any = Inputs(num_bases, longest + 1)
    found = Prepared(inputs, SimpleNamespace(), [output], [output], {})  # type: ignore[arg-type]
    found.result = Trials({"reference": Series(windows)}, Watch([]), 2, 0.1)
    return found


def runner(num_uses: int = 1) -> Reference:
    reference = Reference.__new__(Reference)
    reference.hosted, reference.num_uses, reference.is_doubtful = Hosted(), num_uses, False  # type: ignore[assignment]
    return reference


def findings() -> Findings:
    return Findings(Problem(name="p", source="pass"), Candidate(source="pass"), protocol("standard"), "cuda:0")


@pytest.mark.parametrize(("call_us", "longest"), [(20.0, 60), (700.0, 4), (30_000.0, 2)])
def test_a_reference_alone_is_timed_in_as_long_windows_as_beside_its_candidate(call_us: float, longest: int) -> None:
    clock, reference = Clock(call_us), runner()
    found = confirmation.measure(SimpleNamespace(stopwatch=clock), prepared(longest), reference, findings())
    assert found.per_call_us == pytest.approx(call_us, rel=0.01)
    assert found.interval_us[0] <= call_us <= found.interval_us[1]
    assert min(clock.lengths) == 1 and longest * 3 // 4 <= max(clock.lengths) <= longest
    assert reference.hosted.told == ["begin", "end"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("changes_inputs", [False, True])
@pytest.mark.parametrize("num_bases", [0, 1])
def test_a_reference_alone_computes_on_what_its_candidate_never_had(num_bases: int, changes_inputs: bool) -> None:
    """And one that writes to its inputs does not meet again what it has written, as far as that can be."""
    clock, series = Clock(20.0), prepared(60, num_bases=num_bases)
    series.reference_changes_inputs = changes_inputs
    confirmation.measure(SimpleNamespace(stopwatch=clock), series, runner(), findings())
    wanted = [61, *(clock.lengths[1:] if changes_inputs else [])]
    assert series.inputs.refreshed == (wanted if num_bases else [])  # type: ignore[attr-defined]


BREAKING = {
    "failed": Clock(9.0, pages.FAILED),
    "died": Clock(9.0, end=SideEnded("reference", Died({"signal": 9}))),
    "late": Clock(9.0, end=pages.Late("a window did not end in time")),
}


@pytest.mark.parametrize("clock", BREAKING.values(), ids=BREAKING)
def test_a_reference_that_breaks_is_not_held_against_its_candidate(clock: Clock) -> None:
    reference = runner(num_uses=2)
    with pytest.raises((Ruling, Infrastructure)) as caught:
        confirmation.measure(SimpleNamespace(stopwatch=clock), prepared(4), reference, findings())
    assert not isinstance(caught.value, Ruling) or caught.value.status is Status.INVALID_PROBLEM
    assert reference.hosted.told == ["begin", "end"], "whoever uses it next finds it idle"  # type: ignore[attr-defined]


@pytest.mark.parametrize("settings", [TWIN, IN_PLACE], ids=["with a twin", "without"])
@pytest.mark.parametrize(("alone_us", "credited_us"), [(100.0, 100.0), (150.5, 150.0)], ids=["slowed", "not slowed"])
def test_nobody_of_the_candidate_lives_when_a_reference_is_timed_again(
    settings: Protocol,
    alone_us: float,
    credited_us: float,
    bench: HostBench,
    windows: Windows,
    asked: dict[Session, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A figure of 150 that nobody has seen; what it takes alone tells whether the candidate slowed it."""
    seen: list[tuple[list[bool], str]] = []

    def measure(_: Any, __: Any, reference: Reference, ___: Any) -> Any:
        seen.append(([session.ended is None for session in asked], reference.begun))
        return SimpleNamespace(per_call_us=alone_us, interval_us=(alone_us - 1, alone_us + 1))

    monkeypatch.setattr(confirmation, "measure", measure)
    bench.reference_times = ReferenceTimes()
    windows.doubtful = Settled(150.0, (149.0, 151.0), is_doubtful=True)
    found = passed(judge(bench, HONEST, tmp_path, settings))
    assert seen == [([True] + [False] * (len(asked) - 1), "timed")]
    assert [settled.per_call_us for settled in windows.credited] == [credited_us]
    assert any("1.50 times as long" in note for note in found.notes) is (alone_us == 100.0)
    assert len(idle(bench)) == 1, "the runner serves others"


@pytest.mark.parametrize(
    ("measured_us", "beside", "alone", "wanted"),
    [
        (26.0, 1.8, 1.2, (1.5, False)),
        (26.0, 1.8, 2.0, (1.0, True)),
        (26.0, 1.2, 1.1, (1.0, False)),
        (90.0, 1.8, 1.2, (1.0, False)),
    ],
    ids=["quicker when alone", "slow all the while", "never slow", "no launch binds it"],
)
def test_slower_cores_account_for_what_launches_bind_alone(
    measured_us: float, beside: float, alone: float, wanted: tuple[float, bool]
) -> None:
    bench, known = SimpleNamespace(clock=SimpleNamespace(peak_bandwidth=lambda: 4.8e12)), findings()
    known.slowness = beside
    leeway, is_slowed = confirmation._by_cores(bench, known, measured_us, alone)
    assert (pytest.approx(leeway), is_slowed) == wanted


@pytest.mark.parametrize("status", ["wrong", "no kernel"])
def test_who_does_not_pass_is_not_waited_for(
    status: str, bench: HostBench, windows: Windows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirmation, "measure", lambda *_: pytest.fail("nobody needs that"))
    bench.reference_times = ReferenceTimes()
    windows.doubtful = Settled(150.0, (149.0, 151.0), is_doubtful=True)
    refused(judge(bench, HONEST.replace("return y", "return y + 1") if status == "wrong" else LIBRARY, tmp_path))
    assert windows.credited == []


@pytest.mark.parametrize("begun", ["timed", "cause"])
def test_a_reference_that_was_asked_for_another_instance_gets_one_to_be_timed(begun: str) -> None:
    """As where the silent twin was asked whether its kernels cause its answer."""
    made: list[str] = []

    def conceive(instance: str) -> None:
        assert match.birth is None, "there may be no room for two sets of weights"
        made.append(instance)
        match.birth = "weights"

    reference = SimpleNamespace(begun=begun, hosted=None)
    match: Any = SimpleNamespace(reference=reference, conceive=conceive, birth="weights")
    series = prepared(4)
    series.arguments = SimpleNamespace(of=lambda _: [])  # type: ignore[assignment]
    confirmation.prepare(series, match, findings())
    assert made == (["timed"] if begun == "cause" else []) and match.birth is None
