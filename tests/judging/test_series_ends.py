"""How a series of windows ends for a verdict where one of its sides does not play as it should, without a device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kerneldojo.devices.cuda import page as pages
from kerneldojo.devices.cuda.series import Series
from kerneldojo.judging import timing
from kerneldojo.judging.ends import Died, Failed, HostedEnd, Tampered
from kerneldojo.judging.preparation import Prepared
from kerneldojo.judging.protocol import protocol
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.verdict import Findings
from kerneldojo.schema import Candidate, Problem, Status
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
        self.num_runs = 0
        self.told: list[str] = []

    def end(self, side: Any) -> None:
        self.told.append(side.name)

    def run(self, _: Any, racing: list[Any], *__: Any, **___: Any) -> Any:
        self.num_runs += 1
        self.told += [side.name for side in racing]
        return SimpleNamespace(series={side.name: Series(failed=self.failed.get(side.name, 0)) for side in racing})


def run(monkeypatch: pytest.MonkeyPatch, played: Played, **parties: Party) -> Prepared:
    monkeypatch.setattr(timing.trials, "run", played.run)
    bench: Any = SimpleNamespace(stopwatch=played, clock=None, reference_times=None, pace=Pace())
    match: Any = SimpleNamespace(reference=SimpleNamespace(hosted=parties["reference"]))
    match.contestant = SimpleNamespace(hosted=parties["contestant"])
    findings = Findings(Problem(name="p", source="pass"), Candidate(source="pass"), protocol("quick"), "cuda:0")
    hosted: Any = dict(parties)
    prepared = Prepared(None, None, [], [], hosted, {name: [] for name in parties})  # type: ignore[arg-type]
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
    assert played.told == ["reference", "contestant"] * 1 + ["contestant", "reference"]
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
