"""Bursts beside others: how many calls, how often, without a device. The call loop is a thread's here."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Generator

import pytest

from kerneldojo.devices.cuda import bursts
from kerneldojo.devices.cuda import page as pages
from kerneldojo.devices.cuda.page import Page


@contextlib.contextmanager
def served(serve: Callable[[int], int]) -> Generator[tuple[Page, list[int]]]:
    """A page whose windows of so many calls `serve` makes, and the lengths of those it was told of."""
    page = Page.create((1 << 20,))
    theirs, lengths = Page.open(page.fd), list[int]()

    def loop() -> None:
        while True:
            length, flags = theirs.wait_go(10)
            if not length and not flags:
                return
            if length:
                lengths.append(length)
            theirs.done(serve(length) if length else pages.OK, 1)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield page, lengths
    finally:
        page.go(0)
        thread.join(20)
        assert not thread.is_alive()


def is_little(page: Page, longest: int, most_us: float) -> bool:
    wait = lambda: page.wait_done(time.monotonic() + 10, lambda: None)  # noqa: E731
    return bursts.is_little(page, longest, lambda: wait() and None, lambda us: us < most_us)


def test_short_calls_share_what_a_window_costs() -> None:
    assert bursts.num_calls(63, 35.0) == 63
    assert bursts.num_calls(63, 1000.0) == bursts.SHORT_US // 1000
    assert bursts.num_calls(63, 100_000.0) == bursts.num_calls(63, math.inf) == bursts.MOST_CALLS
    assert bursts.num_calls(5, 35.0) == bursts.num_calls(5, math.inf) == 5


@pytest.mark.parametrize("num_late", [0, 1, 4])
def test_one_window_that_nobody_disturbed_is_enough(num_late: int) -> None:
    late = [0.06] * num_late

    def serve(_: int) -> int:
        time.sleep(late.pop() if late else 0.0)
        return pages.OK

    with served(serve) as (page, lengths):
        assert is_little(page, 63, 800.0)
    assert set(lengths) == {63}
    assert num_late < len(lengths) <= bursts.NUM_TRIES


def test_who_takes_long_does_so_however_often_it_is_asked() -> None:
    def serve(length: int) -> int:
        time.sleep(0.0005 * length)
        return pages.OK

    with served(serve) as (page, lengths):
        assert not is_little(page, 63, 300.0)
    assert set(lengths) == {63}
    assert 2 <= len(lengths) <= bursts.NUM_TRIES


def test_nobody_waits_long_for_a_short_window() -> None:
    def serve(_: int) -> int:
        time.sleep(0.3)
        return pages.OK

    with served(serve) as (page, lengths):
        assert not is_little(page, 16, 300.0)
    assert len(lengths) <= 2


def test_who_fails_is_not_asked_again() -> None:
    with served(lambda _: pages.FAILED) as (page, lengths):
        assert not is_little(page, 63, 300.0)
    assert lengths == [63]
