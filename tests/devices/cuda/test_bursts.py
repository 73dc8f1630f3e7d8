"""Bursts beside others: how many calls, how often, without a device and with a clock of our own."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from kerneldojo.devices.cuda import bursts
from kerneldojo.devices.cuda import page as pages
from kerneldojo.devices.cuda.page import Page


class Served:
    """A process whose windows of so many calls take as many seconds as `takes` says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, takes: Callable[[int], float], state: int = pages.OK) -> None:
        self.lengths: list[int] = []
        self.told: list[str] = []
        self._takes, self._state, self._now = takes, state, 1000.0
        self._page = Page.create((1 << 20,))
        self._theirs = Page.open(self._page.fd)
        clock = SimpleNamespace(perf_counter_ns=lambda: int(1e9 * self._now), monotonic=lambda: self._now)
        monkeypatch.setattr(bursts, "time", clock)

    def is_little(self, longest: int, most_us: float) -> bool:
        """Whether it says that a call takes no more than that."""
        return bursts.is_little(self._page, longest, self._wait, lambda us: us < most_us)

    def quickest_us(self, longest: int) -> tuple[float, float] | None:
        return bursts.quickest_us(self._page, longest, self._wait, lambda: self.told.append("flush"))

    def _wait(self) -> None:
        length, flags = self._theirs.wait_go(10)
        assert length or flags in (pages.RELEASE, pages.PRIME)
        self.told.append("window" if length else {pages.RELEASE: "release", pages.PRIME: "prime"}[flags])
        if length:
            self.lengths.append(length)
            self._now += self._takes(length)
        self._theirs.done(self._state if length else pages.OK, 1)


def test_short_calls_share_what_a_window_costs() -> None:
    assert bursts.num_calls(63, 35.0) == 63
    assert bursts.num_calls(63, 1000.0) == bursts.SHORT_US // 1000
    assert bursts.num_calls(63, 100_000.0) == bursts.num_calls(63, math.inf) == bursts.MOST_CALLS
    assert bursts.num_calls(5, 35.0) == bursts.num_calls(5, math.inf) == 5


@pytest.mark.parametrize("num_late", [0, 1, bursts.NUM_TRIES - 1])
def test_one_window_that_nobody_disturbed_is_enough(monkeypatch: pytest.MonkeyPatch, num_late: int) -> None:
    late = [0.06] * num_late
    served = Served(monkeypatch, lambda _: late.pop() if late else 0.0005)
    assert served.is_little(63, 30.0)
    assert served.lengths == [63] * (num_late + 1)


def test_who_takes_long_does_so_however_often_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(monkeypatch, lambda length: 0.0005 * length)
    assert not served.is_little(63, 300.0)
    assert served.lengths == [63] * bursts.NUM_TRIES


def test_nobody_waits_long_for_a_short_window(monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(monkeypatch, lambda _: 0.6 * bursts.MOST_SECONDS)
    assert not served.is_little(16, 300.0)
    assert len(served.lengths) == 2


def test_who_fails_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(monkeypatch, lambda _: 0.0, pages.FAILED)
    assert not served.is_little(63, 300.0)
    assert served.lengths == [63]


def test_with_the_device_idle_the_quickest_windows_of_two_lengths_tell_what_a_call_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """80 us around calls of 40, in the quickest; the others are later by what the next quickest tells."""
    late_us = {1: [9.0, 3.0, 0.0, 500.0, 6.0], bursts.MOST_CALLS: [12.0, 900.0, 0.0, 40.0, 30.0]}
    served = Served(monkeypatch, lambda length: 1e-6 * (80.0 + 40.0 * length + late_us[length].pop()))
    found = served.quickest_us(63)
    assert found == pytest.approx((40.0, (3.0 + 12.0) / (bursts.MOST_CALLS - 1)))
    assert served.lengths == [1, bursts.MOST_CALLS] * bursts.NUM_BURSTS
    assert served.told == ["flush", "prime", "window", "release"] * 2 * bursts.NUM_BURSTS


def test_where_a_window_may_have_one_call_what_is_around_it_is_in_the_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    late_us = [9.0, 3.0, 0.0, 500.0, 6.0]
    served = Served(monkeypatch, lambda _: 1e-6 * (120.0 + late_us.pop()))
    assert served.quickest_us(1) == pytest.approx((120.0, 3.0))


def test_no_call_takes_less_than_nothing_and_one_that_fails_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Served(monkeypatch, lambda length: 1e-3 / length).quickest_us(4) == pytest.approx((0.0, 0.0))
    served = Served(monkeypatch, lambda _: 0.0, pages.FAILED)
    assert served.quickest_us(4) is None and served.lengths == [1]
