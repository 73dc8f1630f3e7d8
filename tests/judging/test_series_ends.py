"""How a series of windows ends for a verdict where one of its sides does not play as it should, without a device."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kerneldojo.devices.cuda import page as pages
from kerneldojo.devices.cuda.series import Series
from kerneldojo.judging import timing
from kerneldojo.judging.ends import Died, Failed, HostedEnd, Infrastructure, Late, Tampered
from kerneldojo.judging.preparation import Prepared
from kerneldojo.judging.protocol import protocol
from kerneldojo.judging.reference import Reference
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.sides import ArgumentSets, SideEnded, side
from kerneldojo.judging.verdict import Findings
from kerneldojo.schema import Candidate, Problem, Status, Timing
from kerneldojo.schema.pace import Pace


class Party:
    """A hosted process that answers every question, but for one."""

    arena = None

    def __init__(self, *, refuses: HostedEnd | None = None, fails: HostedEnd | None = None) -> None:
        self.session = self
        self._refuses, self._fails = refuses, fails
        self.num_owed = 0
        self.was_killed = False

    def post(self, *_: Any, **__: Any) -> None:
        if self._refuses is not None:
            raise self._refuses
        self.num_owed += 1

    def collect(self, _: float) -> dict[str, Any]:
        self.was_killed |= not self.num_owed  # It was asked nothing: nobody answers before the deadline.
        self.num_owed -= 1
        if self._fails is not None:
            raise self._fails
        return {}

    def is_idle(self) -> bool:
        return not self.num_owed


class Played:
    """Stands for the series itself: what the sides said of it, and who was told that it is over."""

    def __init__(self, **failed: int) -> None:
        self.failed = failed
        self.ended: SideEnded | None = None
        self.num_runs = 0
        self.told: list[str] = []
        self.has_room: Callable[[], bool] = lambda: True

    def end(self, side: Any) -> None:
        self.told.append(side.name)

    def run(self, _: Any, racing: list[Any], *__: Any, inspect: Any, **___: Any) -> Any:
        self.num_runs += 1
        assert self.has_room(), "calls of an earlier series that it remembers whole may fill a device"
        self.told += [side.name for side in racing]
        failed = {name: SimpleNamespace(state=state) for name, state in self.failed.items()}
        inspect(2, failed)
        if self.ended is not None:
            raise self.ended
        return SimpleNamespace(series={side.name: Series(failed=self.failed.get(side.name, 0)) for side in racing})


class Remembered:
    """Stands for what was kept of a series before."""


class Inputs:
    """Inputs of timed calls in which somebody else has written, or nobody."""

    num_fresh = 2

    def __init__(self, *, are_others: bool = False) -> None:
        self._are_others = are_others

    def differs(self, index: int) -> torch.Tensor:
        return torch.tensor(self._are_others and index == 1)


def run(
    monkeypatch: pytest.MonkeyPatch, played: Played, inputs: Any = None, num_uses: int = 1, **parties: Party
) -> Prepared:
    monkeypatch.setattr(timing.trials, "run", played.run)
    bench: Any = SimpleNamespace(stopwatch=played, clock=None, reference_times=None, pace=Pace())
    reference = Reference.__new__(Reference)
    reference.hosted, reference.num_uses, reference.is_doubtful = parties["reference"], num_uses, False  # type: ignore[assignment]
    match: Any = SimpleNamespace(reference=reference)
    match.contestant = SimpleNamespace(hosted=parties["contestant"])
    findings = Findings(Problem(name="p", source="pass"), Candidate(source="pass"), protocol("quick"), "cuda:0")
    hosted: Any = dict(parties)
    inputs = inputs or Inputs()
    prepared = Prepared(inputs, ArgumentSets([], inputs), [], [], hosted)
    prepared.inspection = Remembered()  # type: ignore[assignment]
    before = weakref.ref(prepared.inspection)
    played.has_room = lambda: before() is None
    timing.run(bench, prepared, match, findings)
    return prepared


@pytest.mark.parametrize(
    ("end", "status"), [(Tampered("it spoke without being asked"), Status.EXPLOIT), (Died({}), Status.RUNTIME_ERROR)]
)
def test_who_ends_before_its_series_answers_for_it(
    monkeypatch: pytest.MonkeyPatch, end: HostedEnd, status: Status
) -> None:
    """As a fault of ours it would never be scored, so that it would pay to end just then."""
    reference, played = Party(), Played()
    with pytest.raises(Ruling) as caught:
        run(monkeypatch, played, contestant=Party(refuses=end), reference=reference, twin=Party())
    assert caught.value.status is status
    assert played.told == ["reference"], "it would wait for windows that nobody opens"
    assert reference.is_idle()
    assert not reference.was_killed


def test_a_reference_that_ends_before_its_series_is_no_fault_of_the_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    contestant = Party()
    with pytest.raises(Ruling) as caught:
        run(monkeypatch, Played(), contestant=contestant, reference=Party(refuses=Died({})))
    assert caught.value.status is Status.INVALID_PROBLEM
    assert not contestant.was_killed


def test_a_twin_that_ends_before_its_series_is_left_out_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played()
    twin = Party(refuses=Died({}))
    prepared = run(monkeypatch, played, contestant=Party(), reference=Party(), twin=twin)
    assert set(prepared.hosted) == {"contestant", "reference"}
    assert played.told == ["reference", "contestant", "contestant", "reference"], "ended, and then played without it"
    assert played.num_runs == 1


def test_who_says_that_a_window_failed_must_say_so_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page is memory that a candidate can write: a word there alone would leave a verdict without a time."""
    with pytest.raises(Ruling) as caught:
        run(monkeypatch, Played(contestant=pages.FAILED), contestant=Party(), reference=Party())
    assert [exploit.name for exploit in caught.value.exploits] == ["tampering"]
    failed = Failed("runtime_error", "RuntimeError")
    with pytest.raises(Ruling) as caught:
        run(monkeypatch, Played(contestant=pages.FAILED), contestant=Party(fails=failed), reference=Party())
    assert caught.value.status is Status.RUNTIME_ERROR


def ended_in_its_series(monkeypatch: pytest.MonkeyPatch, *, raises: bool, are_others: bool, num_uses: int = 1) -> Any:
    """What comes of a reference that raises, or dies, in timed calls."""
    played = Played(reference=pages.FAILED if raises else pages.OK)
    fails = Failed("runtime_error", "IndexError") if raises else None
    played.ended = None if raises else SideEnded("reference", Died({}))
    with pytest.raises((Ruling, Infrastructure)) as caught:
        run(
            monkeypatch,
            played,
            Inputs(are_others=are_others),
            num_uses,
            contestant=Party(),
            reference=Party(fails=fails),
        )
    return caught.value


@pytest.mark.parametrize("raises", [True, False])
def test_who_breaks_the_reference_by_what_it_writes_answers_for_it(
    monkeypatch: pytest.MonkeyPatch, raises: bool
) -> None:
    """Indices lie where a candidate can write. A problem that cannot be judged would be none for everybody."""
    assert ended_in_its_series(monkeypatch, raises=raises, are_others=False).status is Status.INVALID_PROBLEM
    ruling = ended_in_its_series(monkeypatch, raises=raises, are_others=True)
    assert [exploit.name for exploit in ruling.exploits] == ["wrong_when_timed"]


def test_a_used_runner_that_dies_while_it_is_timed_is_not_the_problems_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = ended_in_its_series(monkeypatch, raises=False, are_others=False, num_uses=2)
    assert isinstance(fault, Infrastructure)


@pytest.mark.parametrize(("name", "is_late"), [("contestant", True), ("twin", True), ("reference", False)])
def test_who_sleeps_while_it_is_timed_does_so_on_its_own_time(name: str, is_late: bool) -> None:
    """Each window may take half a minute, a series has a dozen of them, and everybody else is frozen meanwhile."""
    hosted: Any = SimpleNamespace(arena=None, session=SimpleNamespace(has_ended=lambda: False), remaining=1.0)
    one = side(name, hosted, [])
    one.check()
    hosted.remaining = -0.1
    if not is_late:
        one.check()
        return
    with pytest.raises(SideEnded) as caught:
        one.check()
    assert isinstance(caught.value.end, Late)


@pytest.mark.parametrize(
    ("is_bound", "slowness", "note"),
    [(True, 2.14, "took 2.1 times as long"), (True, 1.1, ""), (False, 2.0, "")],
)
def test_a_slow_host_is_told_where_launches_are_what_was_measured(is_bound: bool, slowness: float, note: str) -> None:
    findings = Findings(Problem(name="x", source="x = 1"), Candidate(source="y = 2"), protocol("quick"), "cuda:0")
    findings.timing = Timing(median_ms=0.028, device_ms=0.013, host_bound=is_bound)
    findings.tell_slow_host(slowness)
    assert (note in findings.notes[0]) if note else not findings.notes
