"""Rounds of windows without a device: the judge's own stopwatch and rounds, with threads for contestants."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from kerneldojo.devices.cuda import interpreter, trials, window_rounds
from kerneldojo.devices.cuda import page as pages
from kerneldojo.devices.cuda.inputs import Layout
from kerneldojo.devices.cuda.page import Page
from kerneldojo.devices.cuda.sampling import NUM_BLOCKS
from kerneldojo.devices.cuda.trials import Trials
from kerneldojo.devices.cuda.window import Side, Stopwatch, Timed
from kerneldojo.devices.cuda.window_rounds import Effort
from kerneldojo.judging import timing
from kerneldojo.judging.protocol import PROTOCOLS
from kerneldojo.schema.pace import Pace

LAYOUT = Layout((256,), (1,), torch.float32)
NUM_SETS = 9
HEAP_BYTES = 4 * NUM_SETS * LAYOUT.num_bytes

Log = list[tuple[str, str]]


class Heap:
    """A contestant's memory, as the judge maps it."""

    def __init__(self) -> None:
        self.size = HEAP_BYTES
        self._bytes = torch.zeros(HEAP_BYTES, dtype=torch.uint8)

    def tensor(self, _: int, shape: tuple[int, ...], stride: tuple[int, ...], __: Any) -> torch.Tensor:
        return self._bytes.as_strided(shape, stride)


class Arena:
    def __init__(self) -> None:
        self.page, self.heap = Page.create((HEAP_BYTES,)), Heap()
        self.outputs_bytes = HEAP_BYTES // 2

    def base(self, _: Heap) -> int:
        return 0


class Contestant:
    """Answers the judge's orders as `CallLoop` does, and notes them where everybody does."""

    def __init__(
        self,
        name: str,
        log: Log,
        *,
        slow_to_release: bool = False,
        fails_at: int = -1,
        call_seconds: float = 0.0,
        is_quick_at: int = -1,
        is_batched: bool = False,
        calls: list[int] | None = None,
        known: list[tuple[int, list[int]]] | None = None,
    ) -> None:
        self._known = [] if known is None else known
        self._calls = [] if calls is None else calls
        self.name, self._log, self._is_slow, self._fails_at = name, log, slow_to_release, fails_at
        self._call_seconds, self._is_quick_at, self._is_batched = call_seconds, is_quick_at, is_batched
        self.arena = Arena()
        self.page = Page.open(self.arena.page.fd)
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        is_imminent, num = False, 0
        while True:
            length, flags = self.page.wait_go(60, is_imminent=is_imminent)
            if length or flags & pages.PRIME:
                at, num_bytes = self.page.last_place()
                self._known.append((at if length else -1, self.page.last(num_bytes).tolist()))
            is_imminent = bool(flags & (pages.WAKE | pages.PRIME))
            if length:
                self._log.append((self.name, "window"))
                self.page.taken()
                self._calls.append(length)
                num_calls = 1 if self._is_batched and num else length  # Not when it warms up.
                time.sleep(num_calls * self._call_seconds * (num != self._is_quick_at))
                for call in range(length):
                    self.page.put_offset(call, call * LAYOUT.num_bytes)
                num += 1
                self._log.append((self.name, "done"))
                self.page.done(pages.OK if num != self._fails_at else pages.FAILED, 1)
                if num == self._fails_at:
                    return
                continue
            what = {pages.WAKE: "wake", pages.RELEASE: "release", 0: "end"}.get(flags, "prime")
            if what == "release" and self._is_slow:
                time.sleep(0.02)
            self._log.append((self.name, what))
            if what == "end":
                return
            self.page.done(pages.OK, 0)


class Inputs:
    """Sets whose content nobody reads; that it is written and changed is noted."""

    count = NUM_SETS
    num_stamps = 0
    may_change = False

    def __init__(self, log: Log) -> None:
        self._log = log

    def refresh(self, length: int) -> None:
        self._log.append(("judge", "write"))

    def restore(self) -> None:
        self._log.append(("judge", "restore"))

    def draw_stamp(self, length: int) -> Any:
        self.num_stamps += 1
        return SimpleNamespace(
            exchange=lambda: self._log.append(("judge", "stamp")),
            last=(64, np.full(8, self.num_stamps, dtype=np.uint8)),
            settle=lambda: self._log.append(("judge", "settle")),
            places=lambda: np.array([(call, 0, LAYOUT.num_bytes) for call in range(length)]),
        )


class HostStopwatch(Stopwatch):
    def __init__(self, log: Log) -> None:
        self.device = torch.device("cpu")
        self._rows = torch.empty(NUM_BLOCKS, dtype=torch.int64)
        self._pinned = torch.empty(NUM_BLOCKS, dtype=torch.int64)
        self._numpy = self._pinned.numpy()
        self._log = log

    def flush(self) -> float:
        self._log.append(("judge", "flush"))
        return 100.0


@pytest.fixture(autouse=True)
def without_a_device(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(window_rounds, "SLOW_FLUSH", 1e9)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)  # Judge and contestants spin, and share one interpreter here.
    monkeypatch.setattr(interpreter, "LONGEST_SECONDS", 1e-4)
    yield
    sys.setswitchinterval(interval)


def race(
    log: Log,
    *,
    is_brisk: bool,
    all_fail_at: int = -1,
    effort: Effort | None = None,
    between: Callable[[], None] | None = None,
    reference_seconds: float = 0.0,
    **of_contestant: Any,
) -> Trials:
    """Three sides: contestant and twin, and a reference that they are compared with."""
    of_all = {"fails_at": all_fail_at, "slow_to_release": of_contestant.get("slow_to_release", False)}
    contestants = [
        Contestant("contestant", log, **of_all | of_contestant),
        Contestant("twin", log, fails_at=all_fail_at),
        Contestant("reference", log, call_seconds=reference_seconds, **of_all),
    ]
    sides = [
        Side(
            one.name,
            one.arena,  # type: ignore[arg-type]
            (LAYOUT,),
            lambda: None,
            is_decisive=one.name != "twin",
            is_trusted=one.name == "reference",
            every=2 if one.name == "twin" else 1,
        )
        for one in contestants
    ]

    def inspect(length: int, timed: dict[str, Timed]) -> None:
        assert all(window.in_bounds and window.disjoint for window in timed.values() if window.state == pages.OK)
        log.append(("judge", "inspect"))

    @contextlib.contextmanager
    def still() -> Generator[None]:
        log.append(("judge", "stop"))
        yield
        log.append(("judge", "let go"))

    device: Any = SimpleNamespace(read=lambda: None)
    effort = effort or Effort(
        min_windows=6, max_windows=6, min_calls=1, seconds=60.0, warm_up_windows=1, is_brisk=is_brisk
    )
    given: Any = (HostStopwatch(log), sides, Inputs(log), device, effort)
    found = trials.run(*given, inspect=inspect, still=still, between=between)
    for one in contestants:
        one.thread.join(20)
        assert not one.thread.is_alive(), "its series was not ended"
    return found


@pytest.mark.parametrize("is_brisk", [False, True])
@pytest.mark.parametrize("slow_to_release", [False, True])
def test_every_side_is_told_the_same_things_in_the_same_order(is_brisk: bool, slow_to_release: bool) -> None:
    log: Log = []
    found = race(log, is_brisk=is_brisk, slow_to_release=slow_to_release)
    num_rounds = 1 + 1 + 6  # One to warm up, one to see how long calls take, those that count.
    assert found.num_rounds == len(found.series["contestant"].windows) == 6
    assert len(found.series["twin"].windows) == 3
    for name, num in (("contestant", num_rounds), ("reference", num_rounds), ("twin", 5)):
        orders = [what for who, what in log if who == name]
        assert orders == ["wake", "prime", "window", "done", "release"] * num + ["end"]


@pytest.mark.parametrize("num_sets", [2, NUM_SETS])
@pytest.mark.parametrize("has_said", [False, True])
@pytest.mark.parametrize("name", sorted(PROTOCOLS))
def test_of_a_slow_side_there_are_as_many_calls_as_its_time_is_reckoned_with(
    name: str, has_said: bool, num_sets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that takes so long that there is no time for them all is ended at once: `Protocol.device_seconds`."""
    monkeypatch.setattr(trials, "HOPELESS", 0.0)  # A reference on a busy machine is slow, too.
    bench, calls, slow_us = SimpleNamespace(pace=Pace()), list[int](), 1.5 * trials.SLOW_US
    effort = timing._effort(bench, PROTOCOLS[name], 1.0, slow_us if has_said else math.inf, None)
    monkeypatch.setattr(Inputs, "count", num_sets)
    found = race([], is_brisk=True, effort=replace(effort, seconds=1e-9), call_seconds=slow_us / 1e6, calls=calls)
    assert found.is_hopeless
    assert sum(calls) >= trials.FEW_CALLS
    assert sum(calls) == trials.FEW_CALLS or not has_said


@pytest.mark.parametrize("is_brisk", [False, True])
def test_what_is_awake_is_what_is_timed_and_content_changes_after_that(is_brisk: bool) -> None:
    log: Log = []
    race(log, is_brisk=is_brisk)
    awake, since = set[str](), set[str]()
    is_stamped = False
    for who, what in log:
        if who == "judge":
            since.add(what)
            is_stamped = what == "stamp" or (is_stamped and what != "write")
        elif what == "wake":
            awake.add(who)
            since.clear()
        elif what == "window":
            assert awake == {who}, "another side would be at work on the core's other thread"
            assert "flush" in since, "what it computed when it was woken may be in the cache"
            assert is_stamped, "it met content that may have been read before"
        elif what == "done":
            awake.discard(who)
        elif what == "release":
            assert not awake - {"contestant"}, "outputs are all looked at before any is freed"


@pytest.mark.parametrize("is_brisk", [False, True])
def test_nobody_who_is_not_trusted_is_waited_for_when_there_is_new_content(is_brisk: bool) -> None:
    """No clock runs then: who answers late could compute on it, and mend in its window what is changed last."""
    log: Log = []
    race(log, is_brisk=is_brisk, slow_to_release=True)
    writes = [index for index, one in enumerate(log) if one == ("judge", "write")]
    for start, stop in zip(writes, [*writes[1:], len(log)], strict=True):
        orders = [what for who, what in log[start:stop] if who == "contestant"]
        assert orders[:3] == ["prime", "window", "done"], "it had been woken, and had freed its outputs, before"
        assert orders[3:] == (["release", "end"] if stop == len(log) else ["release", "wake"])
        twins = [what for who, what in log[start:stop] if who == "twin"]
        assert not twins or twins[-1] in ("release", "end")


def test_what_changes_last_is_known_when_the_clock_runs_and_not_before() -> None:
    known: list[tuple[int, list[int]]] = []
    race([], is_brisk=True, known=known)
    while_primed, in_windows = known[::2], known[1::2]
    assert [content for _, content in in_windows] == [[number] * 8 for number in range(1, len(in_windows) + 1)]
    assert {at for at, _ in in_windows} == {64}
    assert [content for _, content in while_primed] == [[], *(content for _, content in in_windows[:-1])]
    assert {at for at, _ in while_primed} == {-1}


@pytest.mark.parametrize("is_brisk", [False, True])
def test_nobody_else_runs_from_before_the_reference_is_timed_until_the_round_has_been_looked_at(is_brisk: bool) -> None:
    log: Log = []
    race(log, is_brisk=is_brisk)
    is_stopped, num_timed, unlooked = False, 0, False
    for who, what in log:
        if who == "judge":
            assert not (what == "let go" and unlooked), "what was written to the inputs could be put back"
            is_stopped = what == "stop" or (is_stopped and what != "let go")
            unlooked = unlooked and what != "inspect"
        elif what == "window" and is_stopped:
            assert who == "reference"
            num_timed += 1
            unlooked = True
    assert num_timed == 6, "each window that counts, and no other"
    stops = [index for index, one in enumerate(log) if one == ("judge", "stop")]
    assert all(log.index(("judge", "flush"), stop) < log.index(("reference", "prime"), stop) for stop in stops), (
        "what was launched before is seen by the flush and by the bringing in of the context"
    )


@pytest.mark.parametrize("is_brisk", [False, True])
def test_inputs_that_a_side_may_change_are_written_once_more_for_each_that_follows(
    monkeypatch: pytest.MonkeyPatch, is_brisk: bool
) -> None:
    monkeypatch.setattr(Inputs, "may_change", True)
    log: Log = []
    race(log, is_brisk=is_brisk)
    story = [what for _, what in log if what in ("write", "restore", "window")]
    rounds = " ".join(story).split("write ")[1:]
    assert {one.strip() for one in rounds} == {"window restore window", "window restore window restore window"}


@pytest.mark.parametrize("is_brisk", [False, True])
def test_a_side_that_fails_leaves_the_others_their_series(is_brisk: bool) -> None:
    log: Log = []
    found = race(log, is_brisk=is_brisk, fails_at=4)
    assert found.series["contestant"].failed == pages.FAILED
    assert len(found.series["reference"].windows) == 6
    assert [what for who, what in log if who == "reference"][-1] == "end"


@pytest.mark.parametrize("is_brisk", [False, True])
@pytest.mark.parametrize("fails_at", [1, 4])
def test_nobody_may_be_left_to_play(is_brisk: bool, fails_at: int) -> None:
    log: Log = []
    found = race(log, is_brisk=is_brisk, all_fail_at=fails_at)
    assert {series.failed for series in found.series.values()} == {pages.FAILED}


@pytest.mark.parametrize(("slow_us", "num_rounds", "before"), [(20_000.0, 8, [2, 2]), (1e9, 12, [2, 8])])
def test_calls_that_take_long_are_timed_in_few_windows(
    monkeypatch: pytest.MonkeyPatch, slow_us: float, num_rounds: int, before: list[int]
) -> None:
    """Their device is everybody's: of 50 calls that take a second each nobody learns more than of 20."""
    monkeypatch.setattr(trials, "SLOW_US", slow_us)
    lengths: list[int] = []
    refresh = Inputs.refresh
    monkeypatch.setattr(Inputs, "refresh", lambda self, length: [lengths.append(length), refresh(self, length)])
    log: Log = []
    effort = Effort(min_windows=12, max_windows=12, seconds=0.1, is_brisk=True)
    found = race(log, is_brisk=True, effort=effort, call_seconds=0.03, reference_seconds=0.02)
    assert not found.is_hopeless
    assert found.num_rounds == len(found.series["contestant"].windows) == num_rounds
    assert lengths[:2] == before and len(lengths) == 2 + num_rounds
    assert {window.length for window in found.series["contestant"].windows} >= {1, 4}


QUICKLY_OVER = Effort(min_windows=12, max_windows=60, min_calls=1, seconds=0.01, is_brisk=True)

ONE_MORE = replace(QUICKLY_OVER, min_windows=5, max_windows=5)
"""Than who is hopeless has."""


@pytest.fixture
def slower(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is slow is hopeless, whatever its reference takes: that is a thread that waits for its turn here."""
    monkeypatch.setattr(trials, "HOPELESS", 0.0)


@pytest.mark.usefixtures("slower")
def test_who_is_far_slower_than_its_reference_has_four_windows_and_the_reference_all_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Everybody else on the device waits for calls that nobody needs a sharp figure of."""
    asked: list[list[float]] = []
    monkeypatch.setattr(trials, "longest_window", lambda per_call, *_: [asked.append(per_call), 7][1])
    found = race([], is_brisk=True, effort=QUICKLY_OVER, call_seconds=0.03)
    assert found.is_hopeless
    lengths = {name: [window.length for window in one.windows] for name, one in found.series.items()}
    assert sorted(lengths["contestant"]) == [1, 1, 2, 2]
    assert sorted(lengths["twin"]) == [1, 2], "it plays in every other round, and a line needs two lengths"
    assert len(lengths["reference"]) >= QUICKLY_OVER.min_windows
    assert lengths["reference"][:4] == lengths["contestant"]
    assert max(lengths["reference"][4:]) == 7
    told_us = [(window.done_us or 0.0) / window.length for window in found.series["reference"].windows[:4]]
    assert asked == [[min(told_us)]], "windows are as long as if the reference were alone"
    assert set(found.fitted) == {"contestant", "twin", "reference"}


@pytest.mark.usefixtures("slower")
def test_a_reference_that_plays_alone_has_as_much_time_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr(window_rounds.Rounds, "is_over", lambda _, seconds: [asked.append(seconds), True][1])
    found = race([], is_brisk=True, effort=QUICKLY_OVER, call_seconds=0.03)
    assert found.is_hopeless
    (seconds,) = asked
    assert seconds <= found.seconds - trials.FEW_CALLS * 0.03, "that of who is hopeless does not count"


@pytest.mark.usefixtures("slower")
def test_a_reference_that_plays_alone_plays_in_every_round_however_well_it_is_known() -> None:
    effort = replace(QUICKLY_OVER, min_windows=24, target_error=1e9)
    found = race([], is_brisk=True, effort=effort, call_seconds=0.03)
    assert found.is_hopeless
    assert len(found.series["reference"].windows) == found.num_rounds == 24


@pytest.mark.parametrize("times", [0.5, 2.0])
def test_who_is_as_slow_as_its_reference_or_nearly_is_timed_as_any_other(times: float) -> None:
    found = race([], is_brisk=True, effort=ONE_MORE, call_seconds=0.04, reference_seconds=0.04 / times)
    assert not found.is_hopeless
    assert len(found.series["contestant"].windows) == 5


@pytest.mark.usefixtures("slower")
def test_where_there_is_time_for_calls_that_are_far_too_slow_they_are_timed_as_any_others() -> None:
    effort = replace(ONE_MORE, seconds=trials.FEW_CALLS * 0.1)
    found = race([], is_brisk=True, effort=effort, call_seconds=0.03)
    assert not found.is_hopeless
    assert len(found.series["contestant"].windows) == 5


@pytest.mark.parametrize(
    ("mine_us", "theirs_us", "seconds", "is_hopeless"),
    [
        ([81_000.0], [20_000.0], 0.15, True),
        ([80_000.0], [20_000.0], 0.15, False),  # Four times as slow, and no more.
        ([21_000.0], [50.0], 0.15, True),
        ([20_000.0], [50.0], 0.15, False),
        ([21_000.0], [50.0], 0.2, False),  # There is time for eight.
        ([26_000.0], [50.0], 0.2, True),
        ([26_000.0, 24_000.0], [50.0], 0.2, False),
        ([26_000.0], [6_000.0, 7_000.0], 0.15, False),
        ([], [50.0], 0.15, False),
        ([26_000.0], [], 0.15, False),
    ],
)
def test_hopeless_is_who_is_far_slower_and_takes_more_time_than_there_is(
    mine_us: list[float], theirs_us: list[float], seconds: float, is_hopeless: bool
) -> None:
    sides: Any = [
        SimpleNamespace(name=f"{is_trusted}{number}", is_trusted=is_trusted, is_decisive=not is_trusted)
        for is_trusted, times in ((False, [*mine_us, 0.0]), (True, [*theirs_us, 0.0]))
        for number in range(len(times))
    ]
    silent: Any = SimpleNamespace(name="twin", is_trusted=False, is_decisive=False)
    per_call = {"twin": 10.0} | {
        f"{is_trusted}{number}": one
        for is_trusted, times in ((False, mine_us), (True, theirs_us))
        for number, one in enumerate(times)
    }
    assert trials._is_hopeless([*sides, silent], per_call, Effort(seconds=seconds)) is is_hopeless


@pytest.mark.usefixtures("slower")
def test_who_is_slow_in_windows_of_one_call_alone_is_not_hopeless() -> None:
    """Two of its calls take as long as one: whatever that is, it is looked at in as many windows as anybody's."""
    found = race([], is_brisk=True, effort=replace(ONE_MORE, is_slow=True), call_seconds=0.03, is_batched=True)
    assert not found.is_hopeless


@pytest.mark.usefixtures("slower")
@pytest.mark.parametrize("is_quick_at", [2, 5])
def test_who_only_seems_hopeless_is_timed_as_any_other(is_quick_at: int) -> None:
    """Slow before the clock and in three windows of four: few windows would be few that are looked at."""
    found = race([], is_brisk=True, effort=ONE_MORE, call_seconds=0.03, is_quick_at=is_quick_at)
    assert not found.is_hopeless
    assert len(found.series["contestant"].windows) == 5


@pytest.mark.usefixtures("slower")
def test_who_fails_in_few_windows_leaves_the_reference_its_series() -> None:
    found = race([], is_brisk=True, effort=QUICKLY_OVER, call_seconds=0.03, fails_at=4)
    assert found.series["contestant"].failed == pages.FAILED
    assert len(found.series["reference"].windows) >= QUICKLY_OVER.min_windows


@pytest.mark.parametrize(("seconds", "before"), [(0.06, [2]), (0.03, [2, 8])])
def test_what_is_said_to_be_slow_and_is_needs_one_round_before_any_counts(
    monkeypatch: pytest.MonkeyPatch, seconds: float, before: list[int]
) -> None:
    """By what a call takes: two of the quicker ones take longer than one that is slow."""
    monkeypatch.setattr(trials, "SLOW_US", 55_000.0)
    told: list[tuple[int, bool]] = []
    play = window_rounds.Rounds.play

    def noted(self: Any, length: int, *, counted: bool, with_events: bool = False) -> Any:
        if not counted:
            told.append((length, with_events))
        return play(self, length, counted=counted, with_events=with_events)

    monkeypatch.setattr(window_rounds.Rounds, "play", noted)
    race([], is_brisk=True, effort=replace(ONE_MORE, is_slow=True), call_seconds=seconds)
    assert [length for length, _ in told] == before
    assert told[-1][1], "in the last of them sides time their own calls"


@pytest.mark.parametrize(("warm_up_windows", "before"), [(1, [2, 8]), (0, [8])])
def test_sides_time_a_few_calls_themselves_before_any_counts(
    monkeypatch: pytest.MonkeyPatch, warm_up_windows: int, before: list[int]
) -> None:
    """Calls that are known to be quick need no more to be warm."""
    told: list[tuple[int, bool, bool]] = []
    play = window_rounds.Rounds.play

    def noted(self: Any, length: int, *, counted: bool, with_events: bool = False) -> Any:
        told.append((length, counted, with_events))
        return play(self, length, counted=counted, with_events=with_events)

    monkeypatch.setattr(window_rounds.Rounds, "play", noted)
    effort = Effort(
        min_windows=6, max_windows=6, min_calls=1, seconds=60.0, warm_up_windows=warm_up_windows, is_brisk=True
    )
    race([], is_brisk=True, effort=effort)
    assert [length for length, counted, _ in told if not counted] == before
    assert [number for number, one in enumerate(told) if one[2]] == [len(before) - 1]


def test_cores_are_looked_at_after_some_rounds_and_not_at_once() -> None:
    log: Log = []
    race(log, is_brisk=True, between=lambda: log.append(("judge", "look")))
    (look,) = [index for index, one in enumerate(log) if one == ("judge", "look")]
    assert log[:look].count(("judge", "write")) == 2 + trials.LOOK_EVERY - 1, "two rounds to warm up do not count"


def test_a_series_ends_as_soon_as_it_says_enough_and_looks_at_the_clocks_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, float]] = []
    relaxed: list[int] = []

    def is_over(self: window_rounds.Rounds, seconds: float) -> bool:
        asked.append((self.count, seconds))
        return self.count >= 10

    monkeypatch.setattr(window_rounds.Rounds, "is_over", is_over)
    monkeypatch.setattr(window_rounds.Rounds, "relax", lambda self: relaxed.append(self.count))
    effort = Effort(min_windows=6, max_windows=60, min_calls=1, seconds=60.0, is_brisk=True)
    found = race([], is_brisk=True, effort=effort)
    assert found.num_rounds == len(found.series["reference"].windows) == 10
    assert [count for count, _ in asked] == [6, 7, 8, 9, 10]
    assert all(0 <= seconds <= found.seconds < 60 for _, seconds in asked)
    assert len(found.watch.readings) == 2 and relaxed == [0, 4, 8]


def test_a_series_ends_although_a_side_is_still_busy_with_what_it_was_told_last() -> None:
    log: Log = []
    contestant = Contestant("contestant", log, slow_to_release=True)
    side = Side("contestant", contestant.arena, (LAYOUT,), lambda: None)  # type: ignore[arg-type]
    stopwatch = HostStopwatch(log)
    stopwatch.order_release(side)
    stopwatch.end(side)
    contestant.thread.join(20)
    assert log == [("contestant", "release"), ("contestant", "end")]
