"""How often a keeper looks follows from how much is left of what it looks at."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from sandboxed import BARE

from kerneldojo.contestant.sandbox import Limits, Policy
from kerneldojo.contestant.sandbox.cgroups import Group, host_groups
from kerneldojo.contestant.sandbox.enclosure import Plan
from kerneldojo.contestant.sandbox.meters import Meters

GIB = 1 << 30


@pytest.mark.parametrize(
    ("limits", "has_room"),
    [
        (Limits(), True),
        (Limits(scratch_bytes=2 * GIB), True),
        (Limits(scratch_bytes=GIB), False),
        (Limits(num_scratch_files=10_000), False),
        (Limits(num_scratch_files=40_100), False),  # Less is left than that: there are some already.
    ],
)
def test_there_is_room_while_much_is_left(scratch: Path, limits: Limits, has_room: bool) -> None:
    for number in range(101):
        (scratch / str(number)).touch()
    meters = Meters(Plan(Policy(scratch=scratch, readable=(), limits=limits), BARE, None), None, [])
    assert not meters.has_room, "nothing was looked at yet"
    assert meters.exceeded() is None
    assert meters.has_room is has_room


def test_room_is_lost_as_the_folder_fills(scratch: Path) -> None:
    limits = Limits(scratch_bytes=(3 << 29) + (1 << 20))
    meters = Meters(Plan(Policy(scratch=scratch, readable=(), limits=limits), BARE, None), None, [])
    assert meters.exceeded() is None
    assert meters.has_room
    (scratch / "file").write_bytes(os.urandom(2 << 20))
    meters._next_scratch = 0.0  # Or it would not be measured again so soon.
    assert meters.exceeded() is None
    assert not meters.has_room


def test_what_no_path_is_long_enough_for_is_too_much(scratch: Path) -> None:
    """Whoever could write where nobody looks could fill the disk."""
    meters = Meters(Plan(Policy(scratch=scratch, readable=()), BARE, None), None, [])
    assert meters.exceeded() is None
    inner = os.open(scratch, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=inner)
        deeper = os.open("d" * 250, os.O_RDONLY, dir_fd=inner)
        os.close(inner)
        inner = deeper
    os.close(inner)
    meters._next_scratch = 0.0
    assert meters.exceeded() == "scratch"


class Counting:
    """A control group that counts processor time and holds no limit."""

    limits_memory = limits_processes = False

    def __init__(self) -> None:
        self.used: int | None = 0

    def used_microseconds(self) -> int | None:
        return self.used


def counting(scratch: Path) -> tuple[Meters, Counting]:
    group: Any = Counting()
    plan = Plan(Policy(scratch=scratch, readable=(), limits=Limits(num_scratch_files=100)), BARE, None)
    meters = Meters(plan, group, [])
    assert meters.exceeded() is None
    for number in range(101):
        (scratch / str(number)).touch()
    meters._next_scratch, meters._look_anyway = 0.0, math.inf  # However long that took.
    return meters, group


def test_who_has_used_no_processor_time_is_not_looked_at_for_a_while(scratch: Path) -> None:
    meters, _ = counting(scratch)
    assert meters.exceeded() is None, "nobody can have written that"
    meters._look_anyway = 0.0
    assert meters.exceeded() == "scratch"


@pytest.mark.parametrize("used", [1, None])
def test_who_has_run_or_may_have_is_looked_at(scratch: Path, used: int | None) -> None:
    meters, group = counting(scratch)
    group.used = used
    assert meters.exceeded() == "scratch"


def test_the_kernel_says_how_much_processor_time_a_group_has_used() -> None:
    host = host_groups().unified
    if host is None or not os.access(host, os.W_OK):
        pytest.skip("control groups of version 2 cannot be made here")
    group = Group(f"dojo-test-{os.getpid()}", ["kill"], [])
    burn = "while True: pass"
    process = subprocess.Popen([sys.executable, "-c", burn], preexec_fn=group.enter)
    try:
        first = group.used_microseconds()
        time.sleep(0.3)
        second = group.used_microseconds()
        assert first is not None and second is not None and second > first
    finally:
        process.kill()
        process.wait()
    assert group.used_microseconds() == group.used_microseconds(), "nobody is left to use any"
    group.remove()
    assert group.used_microseconds() is None, "nor is there a group"
