"""Own kernels silenced where they were timed: what that proves, when a twin is asked, and what coverage is left."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gpu_steps import CALL, HONEST, IN_PLACE, KERNEL, PROBLEM, HostBench, Windows, judge, passed, refused

from kerneldojo.devices.cuda import page as pages
from kerneldojo.devices.cuda.fits import Fit
from kerneldojo.devices.cuda.inputs import Layout
from kerneldojo.devices.cuda.page import Page
from kerneldojo.judging import placebos, profile, silence
from kerneldojo.judging.contestant import Contestant
from kerneldojo.judging.ends import Died
from kerneldojo.judging.gate import Gate
from kerneldojo.judging.processes import Session
from kerneldojo.judging.protocol import PROTOCOLS, Protocol
from kerneldojo.judging.ruling import Ruling
from kerneldojo.judging.verdict import Findings
from kerneldojo.schema import Candidate, Status

DECOY = KERNEL + CALL.replace("return y", "return x * torch.sigmoid(x)")


LAST = ["arm", *["call"] * placebos.NUM_CALLS]


def test_who_depends_on_its_kernels_needs_no_twin(
    bench: HostBench, asked: dict[Session, list[str]], tmp_path: Path
) -> None:
    passed(judge(bench, HONEST, tmp_path, IN_PLACE))
    _, contestant = asked
    assert asked[contestant][-len(LAST) :] == LAST


def test_a_decoy_is_convicted_by_the_twin_and_not_before(
    bench: HostBench, asked: dict[Session, list[str]], tmp_path: Path
) -> None:
    verdict = refused(judge(bench, DECOY, tmp_path, IN_PLACE))
    assert [exploit.name for exploit in verdict.exploits] == ["no_causal_kernel"]
    _, contestant, twin = asked
    assert asked[contestant][-len(LAST) :] == LAST
    assert asked[twin][:3] == ["furnish", "open", "load"]
    assert asked[twin][-2:] == ["construct", "call"]
    assert "arm" not in asked[twin], "it is silent from birth"


@pytest.mark.parametrize("how", ["cannot", "breaks"])
def test_who_cannot_be_silenced_where_it_is_has_a_twin(
    bench: HostBench, asked: dict[Session, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def arm(_: Contestant) -> bool:
        if how == "breaks":
            raise Ruling(Status.RUNTIME_ERROR, "it broke")
        return False

    monkeypatch.setattr(Contestant, "arm", arm)
    passed(judge(bench, HONEST, tmp_path, IN_PLACE))
    assert len(asked) == 3
    asked.clear()
    assert refused(judge(bench, DECOY, tmp_path, IN_PLACE)).status is Status.EXPLOIT


def test_who_is_slow_has_a_twin(
    bench: HostBench, windows: Windows, asked: dict[Session, list[str]], tmp_path: Path
) -> None:
    windows.call_us = 1.5 * placebos.MOST_CALL_US
    passed(judge(bench, HONEST, tmp_path, IN_PLACE))
    _, contestant, twin = asked
    assert "arm" not in asked[contestant]
    assert asked[twin][-1] == "call"
    assert refused(judge(bench, DECOY, tmp_path, IN_PLACE)).status is Status.EXPLOIT


@pytest.mark.parametrize("layout", ["dense", "transposed"])
def test_who_has_the_device_to_itself_needs_a_twin_where_outputs_do_not_lie_alike(
    bench: HostBench,
    windows: Windows,
    asked: dict[Session, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    layout: str,
) -> None:
    """Nothing is left there of what was drawn, and there is no room for whole outputs."""
    room = bench.room
    monkeypatch.setattr(bench, "room", lambda guest: replace(room(guest), in_place=True))
    windows.layout = layout
    passed(judge(bench, HONEST, tmp_path, IN_PLACE))
    _, contestant, *twins = asked
    assert ("arm" in asked[contestant]) == (layout == "dense")
    assert len(twins) == (layout != "dense")


@pytest.mark.parametrize("word", ["# getattr", "import ctypes", "from triton.runtime import driver"])
def test_who_may_look_at_the_silencing_has_a_twin_from_the_beginning(
    bench: HostBench, asked: dict[Session, list[str]], tmp_path: Path, word: str
) -> None:
    passed(judge(bench, f"{HONEST}\n{word}\n", tmp_path, IN_PLACE))
    _, contestant, twin = asked
    assert "arm" not in asked[contestant]
    assert "load" in asked[twin]


def test_nobody_knows_who_has_a_twin_by_lot() -> None:
    from kerneldojo.judging.parties import Parties
    from kerneldojo.judging.workshop import Workshop

    def share(source: str, settings: Protocol) -> float:
        findings = Findings(PROBLEM, Candidate(source=source), settings, "cuda:0")
        given: Any = (SimpleNamespace(), SimpleNamespace(), None, SimpleNamespace(build_seconds=0.0), findings)
        return sum(Parties(*given, Workshop()).needs_twin for _ in range(2000)) / 2000

    assert share(HONEST, replace(IN_PLACE, twin_share=0.25)) == pytest.approx(0.25, abs=0.06)
    assert share(HONEST, IN_PLACE) == 0
    assert share(HONEST, PROTOCOLS["strict"]) == 1
    assert 0 < PROTOCOLS["standard"].twin_share < 1
    assert share(HONEST + "# cpp_extension", IN_PLACE) == 1


def test_who_has_used_up_its_time_is_asked_all_the_same(
    bench: HostBench, windows: Windows, asked: dict[Session, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that seems to hang depends on its kernels: so a decoy must not be able to have no time left."""
    is_mute = silence.is_mute_in_place

    def late(bench: Any, guest: Any, match: Any, *others: Any) -> bool:
        match.contestant.hosted.extend(-match.contestant.hosted.remaining)
        return is_mute(bench, guest, match, *others)

    monkeypatch.setattr(silence, "is_mute_in_place", late)
    assert refused(judge(bench, DECOY, tmp_path, IN_PLACE)).status is Status.EXPLOIT
    assert len(asked) == 3


GUESS = [True, False, False, True, True, False, True, False]


@pytest.mark.parametrize("broken", [GUESS, [True] * 8])
def test_who_breaks_at_the_last_question_has_to_guess_in_which_calls(
    bench: HostBench,
    windows: Windows,
    asked: dict[Session, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: list[bool],
) -> None:
    """It knows all else: which instance is asked, and when. If it guesses right, one time in 254, it passes."""
    passed(judge(bench, HONEST, tmp_path, IN_PLACE))
    _, contestant = asked
    counting = (
        DECOY.replace("return x * torch.sigmoid(x)", "return x * torch.sigmoid(x) + self.is_broken()")
        + f"""
    def __init__(self):
        super().__init__()
        INSTANCES.append(self)
        self.broken = {broken} if len(INSTANCES) == {asked[contestant].count("construct")} else []
    def is_broken(self):
        return 100 * self.broken.pop(0) if self.broken else 0
INSTANCES = []
"""
    )
    for drawn in (GUESS[::-1], GUESS):
        monkeypatch.setattr(silence.placebos, "draw", lambda drawn=drawn: drawn)
        asked.clear()
        verdict = judge(bench, counting, tmp_path, IN_PLACE)
        assert windows.drawn[-1] == drawn
        if drawn == broken:
            passed(verdict)
            assert len(asked) == 2
        else:
            assert [exploit.name for exploit in refused(verdict).exploits] == ["no_causal_kernel"]
            assert len(asked) == 3


class Silent:
    """Stands for a process whose own kernels are no-ops, and for the bench: a thread that serves windows."""

    def __init__(self, call_seconds: float, *, fails: bool = False, is_twin: bool = False) -> None:
        self.num_alone, self.is_twin = 0, is_twin
        self._call_seconds, self._fails = call_seconds, fails
        self._mine = Page.create((1 << 20,))
        self._theirs = Page.open(self._mine.fd)
        self._thread: threading.Thread | None = None
        self.stopwatch = self
        session = SimpleNamespace(has_ended=lambda: False, ended=None)
        arena = SimpleNamespace(page=self._mine, outputs_bytes=1 << 20)
        self.hosted: Any = SimpleNamespace(
            arena=arena, session=session, remaining=60.0, post=self._post, collect=self._collect
        )

    def _post(self, *_: Any, **fields: Any) -> None:
        assert fields["instance"] == ("cause" if self.is_twin else "timed")
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _collect(self, _: float) -> dict[str, Any]:
        assert self._thread is not None
        self._thread.join(20)
        assert not self._thread.is_alive(), "its series was not ended"
        if self._fails:
            raise Died({})
        return {}

    def _serve(self) -> None:
        while True:
            length, flags = self._theirs.wait_go(10)
            if not length and not flags:
                return
            if length and not self.is_twin:
                assert flags & pages.PLACEBOS
                assert all(map(self._theirs.is_placebo, range(length)))
            time.sleep(length * self._call_seconds)
            self._theirs.done(pages.FAILED if self._fails and length else pages.OK, 1)
            if self._fails and length:
                return

    def end(self, _: Any) -> None:
        self._mine.go(0)

    def flush(self) -> float:
        return 0.0

    def measure_alone(self, _: Any, __: Any, action: Any, ___: Any) -> None:
        self.num_alone += 1
        action()


@contextlib.contextmanager
def guest() -> Generator[Any]:
    with Gate(1).admit() as guest:
        yield guest


def bounded(silent: Silent, full_us: float) -> float | None:
    """The coverage of who claims that half of its time is its own kernel's."""
    findings = Findings(PROBLEM, Candidate(source=HONEST), Protocol(), "cuda:0")
    findings.full_fit = Fit(full_us, (full_us, full_us), 40.0, None, math.inf, 12, 100)
    rows = [{"name": name, "own": name == "mine", "device_us": full_us / 2, "launches": 1.0} for name in ("mine", "x")]
    findings.coverage = profile.allowed(rows, findings, None)
    assert findings.coverage == 0.5
    layout = Layout((4,), (1,), torch.float32)
    timed = {"contestant": SimpleNamespace() if silent.is_twin else silent.hosted}
    prepared: Any = SimpleNamespace(layouts=[layout], inputs=SimpleNamespace(count=3), hosted=timed)
    given: Any = silent
    with guest() as one:
        silence.bound_coverage(given, one, prepared, given, rows, findings)
    return findings.coverage


@pytest.mark.parametrize("is_twin", [False, True])
def test_who_takes_next_to_nothing_without_its_kernels_keeps_its_coverage(is_twin: bool) -> None:
    silent = Silent(0.0, is_twin=is_twin)
    assert bounded(silent, 2e6) == 0.5
    assert not silent.num_alone, "others need not stop for that"


@pytest.mark.parametrize("is_twin", [False, True])
def test_who_takes_as_long_without_its_kernels_is_timed_alone_and_loses_its_coverage(is_twin: bool) -> None:
    silent = Silent(0.05, is_twin=is_twin)
    coverage = bounded(silent, 55e3)
    assert coverage is not None
    assert coverage < 0.4, "50 ms of 55 are not its kernels'"
    assert silent.num_alone == 1


def test_of_who_breaks_without_its_kernels_nothing_is_said() -> None:
    silent = Silent(0.0, fails=True)
    assert bounded(silent, 2e6) == 0.5
    assert not silent.num_alone


@pytest.mark.parametrize(
    "line",
    [
        "from sys import modules as loaded",
        "import torch; loaded = torch.sys",
        "import contextlib; loaded = contextlib.os",
        "page = open('/pr' + 'oc/self/mem', 'rb')",
        "import kerneldojo.devices.cuda.page",
    ],
)
def test_a_source_that_gets_at_modules_or_files_by_a_detour_is_known_by_it(line: str) -> None:
    assert not silence.may_watch(HONEST)
    assert silence.may_watch(f"{line}\n{HONEST}")


def test_nearly_all_honest_kernels_are_silenced_where_they_were_timed() -> None:
    sources = [path.read_text() for path in Path(__file__).parents[1].glob("exploits/honest/*.py")]
    assert len(sources) > 50
    assert sum(map(silence.may_watch, sources)) <= len(sources) // 8
