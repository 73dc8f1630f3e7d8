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
        self._takes, self._state, self._now = takes, state, 1000.0
        self._page = Page.create((1 << 20,))
        self._theirs = Page.open(self._page.fd)
        clock = SimpleNamespace(perf_counter_ns=lambda: int(1e9 * self._now), monotonic=lambda: self._now)
        monkeypatch.setattr(bursts, "time", clock)

    def is_little(self, longest: int, most_us: float) -> bool:
        """Whether it says that a call takes no more than that."""
        return bursts.is_little(self._page, longest, self._wait, lambda us: us < most_us)

    def _wait(self) -> None:
        length, flags = self._theirs.wait_go(10)
        assert length or flags == pages.RELEASE
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
