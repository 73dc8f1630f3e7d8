"""A hosted process spends its time budget while it is asked something, and at no other time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kerneldojo.judging import hosted as module
from kerneldojo.judging.ends import Late
from kerneldojo.judging.hosted import Hosted
from kerneldojo.judging.processes import host_arena


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def hosted(clock: Clock, command_seconds: float) -> Hosted:
    """One whose answers take so long, with a budget of ten seconds."""

    def collect(timeout: float) -> dict[str, Any]:
        clock.now += min(timeout, command_seconds)
        if timeout < command_seconds:
            raise Late("no answer")
        return {}

    session: Any = SimpleNamespace(arena=host_arena(1 << 20), post=lambda *_, **__: None, collect=collect)
    return Hosted(session, 10.0)


def test_what_others_need_between_its_commands_is_not_its_time(clock: Clock) -> None:
    one = hosted(clock, 2.0)
    for _ in range(4):
        one.ask("call")
        clock.now += 1000.0  # A slow reference, or a first audit.
    assert one.remaining == pytest.approx(2.0)
    one.give_back(5.0)  # Held while nothing was asked of it: that was not spent.
    assert one.remaining == pytest.approx(2.0)


def test_a_command_that_does_not_end_has_what_is_left(clock: Clock) -> None:
    one = hosted(clock, 60.0)
    with pytest.raises(Late):
        one.ask("call")
    assert clock.now == pytest.approx(110.0)
    assert one.remaining <= 0


def test_what_runs_while_others_are_asked_spends_its_time(clock: Clock) -> None:
    """So that nobody wins time by answering late: its clock runs from when it was told."""
    one = hosted(clock, 0.0)
    one.post("windows")
    clock.now += 6.0
    assert one.remaining == pytest.approx(4.0)
    one.give_back(5.0)  # Of these it was frozen for five.
    one.collect()
    assert one.remaining == pytest.approx(9.0)
